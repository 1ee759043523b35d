// Decodes tokens with llama.cpp as decode.py does, without Python: for machines that have little more than a kernel.
//
//     decode MODEL TOKENS [THREADS [PLACES]]
//
// Weights are read from the model's file into memory of the program's own, so that they lie where they are first touched. Decoding begins with the token that begins a text; the likeliest
// token follows each time, and one that ends a text ends nothing. Prints the seconds and the last token as JSON. `placed.py`
// compiles it against the library that llama-cpp-python has built.
//
// PLACES gets second,accesses,slow for each token: the pages of the weights, each of which a token reads, and those of them that lay
// on another node of memory than node 0 before it. Of the table of tokens only a row is read, and is counted as if all were.

#define _GNU_SOURCE
#include <llama.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "places.h"

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void complain(enum ggml_log_level level, const char *text, void *data) {
    (void)data;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

// The token to follow this one.
static llama_token next(struct llama_context *context, llama_token token, int vocabulary) {
    if (llama_decode(context, llama_batch_get_one(&token, 1))) {
        fputs("decode: llama.cpp does not decode\n", stderr);
        exit(1);
    }
    const float *scores = llama_get_logits_ith(context, -1);
    llama_token best = 0;
    for (llama_token other = 1; other < vocabulary; other++)
        if (scores[other] > scores[best]) best = other;
    return best;
}

struct stretch {
    char *start;
    size_t bytes;
};

// The largest stretch of anonymous memory, in however many mappings: that of the weights.
static struct stretch weights(size_t least) {
    struct stretch largest = {0, 0}, now = {0, 0};
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        uintptr_t start, end;
        unsigned long inode;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &start, &end, &inode) != 3 || inode || strchr(line, '[')) continue;
        if (now.start + now.bytes != (char *)start) now = (struct stretch){(char *)start, 0};
        now.bytes += end - start;
        if (now.bytes > largest.bytes) largest = now;
    }
    if (maps) fclose(maps);
    if (largest.bytes < least) {
        fputs("decode: the weights are not in one stretch of anonymous memory\n", stderr);
        exit(1);
    }
    return largest;
}

int main(int argc, char **argv) {
    int tokens = argc > 2 ? atoi(argv[2]) : 0, threads = argc > 3 ? atoi(argv[3]) : 1;
    if (tokens < 1 || threads < 1) {
        fprintf(stderr, "%s MODEL TOKENS [THREADS [PLACES]]\n", argv[0]);
        return 2;
    }
    FILE *places = argc > 4 ? fopen(argv[4], "w") : NULL;
    if (argc > 4 && !places) {
        perror(argv[4]);
        return 1;
    }
    llama_log_set(complain, NULL);
    llama_backend_init();
    double begun = seconds();
    struct llama_model_params wanted = llama_model_default_params();
    wanted.use_extra_bufts = 0;
    wanted.load_mode = LLAMA_LOAD_MODE_NONE;
    struct llama_model *model = llama_model_load_from_file(argv[1], wanted);
    struct llama_context_params shape = llama_context_default_params();
    shape.n_ctx = (unsigned)tokens + 1;
    shape.n_batch = shape.n_ubatch = 32;
    shape.n_threads = shape.n_threads_batch = threads;
    struct llama_context *context = model ? llama_init_from_model(model, shape) : NULL;
    if (!context) {
        fprintf(stderr, "decode: llama.cpp does not load %s\n", argv[1]);
        return 1;
    }
    double loaded = seconds();
    const struct llama_vocab *words = llama_model_get_vocab(model);
    llama_token token = llama_vocab_bos(words);
    struct stretch read = {0, 0};
    if (places) read = weights(llama_model_size(model)), fputs("second,accesses,slow\n", places);
    for (int done = 0; done < tokens; done++) {
        if (places) {
            struct pages lie = pages_of(read.start, read.bytes);
            fprintf(places, "%.2f,%zu,%zu\n", seconds() - loaded, lie.there, lie.slow);
        }
        token = next(context, token, llama_vocab_n_tokens(words));
    }
    if (places && fclose(places)) return 1;
    printf("{\"load_s\": %.3f, \"decode_s\": %.3f, \"last_token\": %d}\n", loaded - begun, seconds() - loaded, token);
    llama_free(context);
    llama_model_free(model);
    llama_backend_free();
    return 0;
}
