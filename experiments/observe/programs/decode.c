// Decodes tokens with llama.cpp as decode.py does, without Python: for machines that have little more than a kernel.
//
//     decode MODEL TOKENS [THREADS]
//
// Weights are read from the model's file into memory of the program's own, so that they lie where they are first touched. Decoding begins with the token that begins a text; the likeliest
// token follows each time, and one that ends a text ends nothing. Prints the seconds and the last token as JSON. `placed.py`
// compiles it against the library that llama-cpp-python has built.

#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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

int main(int argc, char **argv) {
    int tokens = argc > 2 ? atoi(argv[2]) : 0, threads = argc > 3 ? atoi(argv[3]) : 1;
    if (tokens < 1 || threads < 1) {
        fprintf(stderr, "%s MODEL TOKENS [THREADS]\n", argv[0]);
        return 2;
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
    for (int done = 0; done < tokens; done++) token = next(context, token, llama_vocab_n_tokens(words));
    printf("{\"load_s\": %.3f, \"decode_s\": %.3f, \"last_token\": %d}\n", loaded - begun, seconds() - loaded, token);
    llama_free(context);
    llama_model_free(model);
    llama_backend_free();
    return 0;
}
