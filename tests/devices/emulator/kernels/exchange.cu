// Blocks that pass tagged words on in a ring, in two buffers that take turns.

#include "common/exchange.cuh"

struct Params {
  UInt32 first_round;
  Int32 num_rounds;
};

// A float for each word.
struct Floats {
  UInt64* words;

  __device__ void send(int index, float number, UInt32 tag) const {
    store_relaxed(words + index, TaggedFloats::word(TaggedFloats::value_of(number), tag));
  }
  // The number in word `index`, once this exchange has brought it; its neighbour may come later.
  __device__ float receive(int index, UInt32 tag) const {
    const int place = index % TaggedFloats::kNumWords;
    const UInt64* first = words + (index - place);
    TaggedFloats::Words loaded = TaggedFloats::load(first);
    while (TaggedFloats::difference(loaded.words[place], tag) != 0) {
      give_way();
      loaded = TaggedFloats::load(first);
    }
    return __uint_as_float(static_cast<UInt32>(loaded.words[place]));
  }
};

// Pairs of neighbouring halves from `words` on; after num_words words, each half of 2 and more alone.
struct Pairs {
  UInt64* words;
  int num_words;

  __device__ UInt32* pair_of(int index) const {
    return reinterpret_cast<UInt32*>(words) + index / TaggedPairs::kNumValues;
  }
  __device__ Floats singles() const { return {words + num_words}; }

  __device__ void send(int index, float number, UInt32 tag) const {
    const UInt32 value = half_bits_from_float(number);
    const UInt32 values = value | __shfl_xor_sync(kFullMask, value, 1) << 16;
    if (index % 2 == 0) store_relaxed(pair_of(index), TaggedPairs::word(values, tag));
    if (!TaggedPairs::fits(values)) singles().send(index, number, tag);
  }
  __device__ float receive(int index, UInt32 tag) const {
    const UInt32 tag_bits = TaggedPairs::tag_bits(tag);
    UInt32 values = load_relaxed(pair_of(index)) ^ tag_bits;
    while ((values & TaggedPairs::kIsMissing) != 0) {
      give_way();
      values = load_relaxed(pair_of(index)) ^ tag_bits;
    }
    UInt32 value = values >> index % 2 * 16;
    if ((values & TaggedPairs::kIsElsewhere) != 0) {
      value = half_bits_from_float(singles().receive(index, tag));
    }
    return float_from_half_bits(static_cast<UInt16>(value));
  }
};

// Each thread adds what it receives from the block before to its own number, once a round. `buffers` take
// turns; words are zeroed.
template <class Buffer>
__device__ void pass_on(const float* x, const Buffer (&buffers)[2], const Floats& acknowledged,
                        float* out, Params params) {
  const int num_threads = blockDim.x;
  const int own = blockIdx.x * num_threads + threadIdx.x;
  const int before = (blockIdx.x + gridDim.x - 1) % gridDim.x * num_threads + threadIdx.x;
  const int after = (blockIdx.x + 1) % gridDim.x * num_threads + threadIdx.x;
  float sum = x[own];
  for (int i = 0; i < params.num_rounds; ++i) {
    const UInt32 round = params.first_round + i;
    buffers[round % 2].send(own, sum, round);
    sum = 0.5f * sum + buffers[round % 2].receive(before, round);
    // A word may be overwritten once its reader has read it. The reader is the block after, which then
    // acknowledges the round, so every block waits for that as well.
    acknowledged.send(own, sum, round);
    acknowledged.receive(after, round);
  }
  out[own] = sum;
}

__global__ void ring_of_floats(const float* x, UInt64* words, float* out, Params params) {
  const int num_words = gridDim.x * blockDim.x;
  const Floats buffers[] = {{words}, {words + num_words}};
  pass_on(x, buffers, Floats{words + 2 * num_words}, out, params);
}

__global__ void ring_of_pairs(const float* x, UInt64* words, float* out, Params params) {
  const int num_words = gridDim.x * blockDim.x;
  const Pairs buffers[] = {{words, num_words}, {words + 2 * num_words, num_words}};
  pass_on(x, buffers, Floats{words + 4 * num_words}, out, params);
}
