// Blocks that pass tagged words on in a ring, in two buffers that take turns.

#include "common/exchange.cuh"

struct Params {
  Int32 num_rounds;
};

// Each thread adds what it receives from the block before to its own value, once a round. `words` is zeroed.
__global__ void ring(const float* x, UInt64* words, float* out, Params params) {
  const int num_threads = blockDim.x, num_words = gridDim.x * num_threads;
  const int own = blockIdx.x * num_threads + threadIdx.x;
  const int before = (blockIdx.x + gridDim.x - 1) % gridDim.x * num_threads + threadIdx.x;
  float sum = x[own];
  for (int round = 1; round <= params.num_rounds; ++round) {
    UInt64* buffer = words + round % 2 * num_words;
    send_tagged(buffer + own, sum, round);
    // The pair that the word is in, in a word of its own order.
    WordPair pair = load_pair_relaxed(buffer + (before & ~1));
    while (!has_tag(before & 1 ? pair.second : pair.first, round)) {
      give_way();
      pair = load_pair_relaxed(buffer + (before & ~1));
    }
    sum = 0.5f * sum + tagged_value(before & 1 ? pair.second : pair.first);
    // Nobody overwrites a word before its reader has sent the next one, and with it has read this one:
    // the reader is the block after, so every block waits for that as well.
    const int after = (blockIdx.x + 1) % gridDim.x * num_threads + threadIdx.x;
    UInt64* acknowledged = words + 2 * num_words;
    send_tagged(acknowledged + own, 0.0f, round);
    for (;;) {
      pair = load_pair_relaxed(acknowledged + (after & ~1));
      if (has_tag(after & 1 ? pair.second : pair.first, round)) break;
      give_way();
    }
  }
  out[own] = sum;
}
