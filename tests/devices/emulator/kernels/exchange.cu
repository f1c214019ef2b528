// Blocks that pass tagged words on in a ring, in two buffers that take turns.

#include "common/exchange.cuh"

struct Params {
  UInt32 first_round;
  Int32 num_rounds;
};

__device__ float number_in(UInt64 word) { return __uint_as_float(static_cast<UInt32>(word)); }
__device__ float number_in(UInt32 word) { return float_from_half_bits(static_cast<UInt16>(word)); }

// The number in word `index`, once this exchange has brought it; its neighbours may come later.
template <class Format>
__device__ float receive(const typename Format::Word* buffer, int index, UInt32 tag) {
  constexpr int kNumWords = Format::kNumWords;
  const int place = index % kNumWords;
  typename Format::Words words = Format::load(buffer + (index - place));
  while ((Format::difference(words.words[place], tag) & Format::kTagBits) != 0) {
    give_way();
    words = Format::load(buffer + (index - place));
  }
  return number_in(words.words[place]);
}

template <class Format>
__device__ void send(typename Format::Word* address, float number, UInt32 tag) {
  store_relaxed(address, Format::word(Format::value_of(number), tag));
}

// Each thread adds what it receives from the block before to its own number, once a round. `words` is zeroed.
template <class Format>
__global__ void ring(const float* x, typename Format::Word* words, float* out, Params params) {
  const int num_threads = blockDim.x, num_words = gridDim.x * num_threads;
  const int own = blockIdx.x * num_threads + threadIdx.x;
  const int before = (blockIdx.x + gridDim.x - 1) % gridDim.x * num_threads + threadIdx.x;
  const int after = (blockIdx.x + 1) % gridDim.x * num_threads + threadIdx.x;
  typename Format::Word* acknowledged = words + 2 * num_words;
  float sum = x[own];
  for (int i = 0; i < params.num_rounds; ++i) {
    const UInt32 round = params.first_round + i;
    typename Format::Word* buffer = words + round % 2 * num_words;
    send<Format>(buffer + own, sum, round);
    sum = 0.5f * sum + receive<Format>(buffer, before, round);
    // A word may be overwritten once its reader has read it. The reader is the block after, which then
    // acknowledges the round, so every block waits for that as well.
    send<Format>(acknowledged + own, sum, round);
    receive<Format>(acknowledged, after, round);
  }
  out[own] = sum;
}
