// Blocks that pass tagged words on in a ring, in two buffers that take turns.

#include "common/exchange.cuh"

struct Params {
  Int32 num_rounds;
};

// The value of word `index`, once it has come in its exchange: the words that it is loaded with are later.
__device__ float receive(const UInt64* buffer, int index, UInt32 tag) {
  constexpr int kNumWords = TaggedFloats::kNumWords;
  const int place = index % kNumWords;
  float values[kNumWords];
  for (;;) {
    const WordPair pair = TaggedFloats::load(buffer + (index - place));
    TaggedFloats::unpack(pair, values);
    if (TaggedFloats::has_tag(pair.words[place], tag)) return values[place];
    give_way();
  }
}

// Each thread adds what it receives from the block before to its own value, once a round. `words` is zeroed.
__global__ void ring(const float* x, UInt64* words, float* out, Params params) {
  const int num_threads = blockDim.x, num_words = gridDim.x * num_threads;
  const int own = blockIdx.x * num_threads + threadIdx.x;
  const int before = (blockIdx.x + gridDim.x - 1) % gridDim.x * num_threads + threadIdx.x;
  const int after = (blockIdx.x + 1) % gridDim.x * num_threads + threadIdx.x;
  float sum = x[own];
  for (int round = 1; round <= params.num_rounds; ++round) {
    UInt64* buffer = words + round % 2 * num_words;
    store_relaxed(buffer + own, TaggedFloats::word(sum, round));
    sum = 0.5f * sum + receive(buffer, before, round);
    // Nobody overwrites a word before its reader has sent the next one, and with it has read this one:
    // the reader is the block after, so every block waits for that as well.
    UInt64* acknowledged = words + 2 * num_words;
    store_relaxed(acknowledged + own, TaggedFloats::word(sum, round));
    receive(acknowledged, after, round);
  }
  out[own] = sum;
}
