// The memory comes from the C++ library's operator new, and is filled by code that is inlined from its headers.
#include <cstddef>
#include <ctime>
#include <vector>

__attribute__((noinline)) static std::vector<long> make_rows(std::size_t rows) {
    return std::vector<long>(rows, 3); // hot
}

int main() {
    auto rows = make_rows(std::size_t{8} << 20);
    long sum = 0;
    for (std::time_t end = std::time(nullptr) + 3; std::time(nullptr) < end;)
        for (std::size_t at = 0; at < rows.size(); at += 512)
            sum += rows[at];
    return sum == 1;
}
