// Put before a kernel of top-k: overwrites its input while it is read, as another stream may do, and
// without the checker's knowledge. Every second time the input gets random bits, in between the change
// with the number `row_length % 4`.
#pragma once

#include "common/intrinsics.cuh"
#include "common/lengths.cuh"
#include "common/ordering_key.cuh"
#include "common/types.cuh"

static UInt32 num_reads = 0;

// The length of a ragged row changes at every read.
__attribute__((noinline, no_sanitize("thread"))) inline UInt64 changing_length(const void* lengths,
                                                                               Int64 index,
                                                                               Int32 length_bytes) {
  const UInt64 bits = load_length(lengths, index, length_bytes);
  static_cast<UInt32*>(const_cast<void*>(lengths))[index] = num_reads++ * 2654435761u >> 17;
  return bits;
}
#define load_length changing_length

#include "top_k/fine_key.cuh"

static void* changing_input = nullptr;

template <class Word, class Order>
__attribute__((noinline, no_sanitize("thread"))) void change_input(const Order& order,
                                                                   UInt32 round) {
  Word* words = static_cast<Word*>(changing_input);
  for (Int64 i = 0; i < order.num_rows * order.row_length; ++i) {
    UInt64 bits = (i + 1) * (2 * round + 1) * 0x9e3779b97f4a7c15ull;
    bits ^= bits >> 29;
    const Word any = static_cast<Word>(bits * 0xbf58476d1ce4e5b9ull >> 24);
    const int change = round % 2 == 0 ? 0 : order.row_length % 4;
    if (change == 0) words[i] = any;
    if (change == 1) words[i] = 0;
    if (change == 2) words[i] = static_cast<Word>(~Word{0});
    if (change == 3 && any % 128 == 0) words[i] = static_cast<Word>(~words[i]);
  }
}

template <class Word, class Order>
Word changing_key(Word element, const Order& order) {
  const UInt32 between = static_cast<UInt32>(order.row_length) / 4 * 3;
  if (++num_reads % between == 0) change_input<Word>(order, num_reads / between);
  return ordering_key(element, order);
}

template <class Word>
Wide<Word> changing_fine_key(Wide<Word> bits, const FineParams& order) {
  const UInt32 between = static_cast<UInt32>(order.row_length) / 4 * 3;
  if (++num_reads % between == 0) change_input<Word>(order, num_reads / between);
  return fine_key<Word>(bits, order);
}

#define ordering_key changing_key
#define fine_key changing_fine_key
#undef SHARED_STORAGE
#define SHARED_STORAGE(Storage, shared)                               \
  Storage& shared = simt_shared_storage<Storage>(__FILE__, __LINE__); \
  changing_input = const_cast<void*>(static_cast<const void*>(input))
