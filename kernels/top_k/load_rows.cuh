// Loads the rows of a warp into shared storage, as vectors of 16 bytes or, if elements are not side by side,
// one by one. `Of` describes the rows: there are kRows, each a Row. Its `vectors` hold kVectors loads of
// kPerVector elements for each of the row's lanes; kLoadsAhead loads are in flight at once.
#pragma once

#include "common/intrinsics.cuh"
#include "common/types.cuh"
#include "top_k/fine_key.cuh"
#include "top_k/row_reader.cuh"
#include "top_k/rows.cuh"

// Fills rows with padding. Padding that stays past the end of a row has the smallest key, and larger indices.
template <class Of>
__device__ __forceinline__ void fill_rows(const FineParams& params,
                                          SharedArray<typename Of::Row, Of::kRows>& rows) {
  constexpr UInt32 kLanes = kWarpSize / Of::kRows;
  const UInt32 low = static_cast<UInt32>(params.padding);
  const UInt32 high = static_cast<UInt32>(params.padding >> 32);
  auto& vectors = rows[threadIdx.x % kWarpSize / kLanes].vectors;
#pragma unroll
  for (UInt32 v = 0; v < Of::kVectors; ++v) {
    vectors[v * kLanes + threadIdx.x % kLanes] = make_uint4(low, high, low, high);
  }
}

// The part of a vector that is moved at once: 32 bits, or an element of 64 bits.
template <int kBytes>
struct PartOf {
  using Type = UInt32;
};
template <>
struct PartOf<8> {
  using Type = UInt64;
};

// Takes vectors apart for a row that begins `misaligned` bytes after the first vector. If elements have less
// than 32 bits, each part of the row lies in two parts of vectors: it begins in one and ends in the next.
template <class Word>
struct PartShift {
  UInt32 order;  // as for `__byte_perm`: the bytes of a part of the row

  __device__ __forceinline__ explicit PartShift(UInt32 misaligned) {
    const UInt32 within = misaligned % 4;
    order = 0x3210 + 0x1111 * (within == 0 ? 4 : within);
  }

  // Neighbouring lanes have neighbouring vectors. In lane 0, `last_before` is the last part of the vector
  // before the lanes' vectors, then of the last lane's vector.
  template <int kLanes, class Part, int kParts>
  __device__ __forceinline__ void move(const uint4& bytes, UInt32& last_before,
                                       Part (&moved)[kParts]) const {
    if constexpr (sizeof(Word) >= 4) {
#pragma unroll
      for (int c = 0; c < kParts; ++c) moved[c] = word_of<Part>(bytes, c);
    } else {
      const UInt32 lane = threadIdx.x % kLanes;
      const UInt32 from_left =
          __shfl_sync(kFullMask, bytes.w, (lane + kLanes - 1) % kLanes, kLanes);
      const UInt32 before = lane == 0 ? last_before : from_left;
      last_before = from_left;
      moved[0] = __byte_perm(before, bytes.x, order);
      moved[1] = __byte_perm(bytes.x, bytes.y, order);
      moved[2] = __byte_perm(bytes.y, bytes.z, order);
      moved[3] = __byte_perm(bytes.z, bytes.w, order);
    }
  }
};

// Loads the first `length` elements of a row, which are side by side, as vectors that begin at multiples of
// 16 bytes. If the row does not begin at one, its parts, of 32 bits or one element, are moved to their
// places. Every lane of the warp calls.
template <class Of, bool kIsRagged, class Word>
__device__ __forceinline__ void load_vectors(const Word* __restrict__ input,
                                             const FineParams& params, Int64 start, UInt32 length,
                                             uint4* vectors) {
  using Part = typename PartOf<sizeof(Word)>::Type;
  constexpr UInt32 kLanes = kWarpSize / Of::kRows;
  constexpr UInt32 kPerVector = Of::kPerVector;
  constexpr UInt32 kPerPart = sizeof(Part) / sizeof(Word);
  constexpr UInt32 kParts = 16 / sizeof(Part);
  constexpr UInt32 kAhead = Of::kLoadsAhead;
  const UInt32 lane = threadIdx.x % kLanes;
  const Word* elements = input + start;
  const bool is_aligned =
      !kIsRagged && params.vector_rows != 0 && reinterpret_cast<UInt64>(input) % 16 == 0;
  // Vectors [begin_vector, end_vector) fill parts [begin_part, begin_part + num_parts) of the row; part p of
  // the first is part p - shift of the row.
  UInt32 misaligned = 0;
  UInt32 begin_vector = 0;
  UInt32 end_vector = length / kPerVector;
  UInt32 begin_part = 0;
  UInt32 num_parts = 0;
  UInt32 shift = 0;
  if (!is_aligned) {
    misaligned = static_cast<UInt32>(reinterpret_cast<UInt64>(elements) % 16);
    const UInt32 skipped = misaligned / static_cast<UInt32>(sizeof(Word));
    // A vector has only elements that may be read: of the row or, if there are no gaps between rows, of the
    // tensor.
    const bool is_gapless = !kIsRagged && params.num_outer_dimensions == 1 &&
                            params.input_strides[0] == params.row_length;
    const Int64 readable = is_gapless ? params.num_rows * params.row_length - start : length;
    if (static_cast<Int64>(skipped) > (is_gapless ? start : 0)) begin_vector = 1;
    end_vector = (length + skipped + kPerVector - 1) / kPerVector;
    if (static_cast<Int64>(end_vector * kPerVector) > readable + skipped) --end_vector;
    if (begin_vector != 0) begin_part = (kPerVector - skipped + kPerPart - 1) / kPerPart;
    if (end_vector > begin_vector) {
      const UInt32 end = min(length, end_vector * kPerVector - skipped) / kPerPart;
      num_parts = max(begin_part, end) - begin_part;
    }
    shift = (misaligned + sizeof(Part) - 1) / sizeof(Part);
    // Elements before and after these parts.
    Word* words = reinterpret_cast<Word*>(vectors);
#pragma unroll 1
    for (UInt32 i = lane; i < min(length, begin_part * kPerPart); i += kLanes) {
      words[i] = elements[i];
    }
#pragma unroll 1
    for (UInt32 i = (begin_part + num_parts) * kPerPart + lane; i < length; i += kLanes) {
      words[i] = elements[i];
    }
  }

  const uint4* from =
      reinterpret_cast<const uint4*>(reinterpret_cast<const UInt8*>(elements) - misaligned);
  from += begin_vector + lane;
  Part* parts = reinterpret_cast<Part*>(vectors) + begin_part;
  UInt32 first_part = (begin_vector + lane) * kParts - shift - begin_part;
  Int32 num_left = static_cast<Int32>(end_vector - begin_vector - lane);
  const PartShift<Word> part_shift(misaligned);
  UInt32 last_before = 0;
#pragma unroll 1
  while (__any_sync(kFullMask, num_left > 0)) {
    uint4 ahead[kAhead];
#pragma unroll
    for (UInt32 a = 0; a < kAhead; ++a) {
      if constexpr (sizeof(Word) < 4) ahead[a].w = 0;  // another lane may get it
      if (static_cast<Int32>(a * kLanes) < num_left) ahead[a] = load_16_bytes(from + a * kLanes);
    }
    if (is_aligned) {
#pragma unroll
      for (UInt32 a = 0; a < kAhead; ++a) {
        uint4* to = reinterpret_cast<uint4*>(parts + first_part) + a * kLanes;
        if (static_cast<Int32>(a * kLanes) < num_left) *to = ahead[a];
      }
      first_part += kAhead * kLanes * kParts;
    } else {
#pragma unroll
      for (UInt32 a = 0; a < kAhead; ++a) {
        Part moved[kParts];
        part_shift.template move<kLanes>(ahead[a], last_before, moved);
#pragma unroll
        for (UInt32 c = 0; c < kParts; ++c) {
          if (first_part + c < num_parts) parts[first_part + c] = moved[c];
        }
        first_part += kLanes * kParts;
      }
    }
    from += kAhead * kLanes;
    num_left -= static_cast<Int32>(kAhead * kLanes);
  }
}

// Loads the warp's rows; `start` and `length` are those of the lane's own row.
template <class Of, bool kIsRagged, class Word>
__device__ __forceinline__ void load_rows(const Word* __restrict__ input, const FineParams& params,
                                          const RowStart& start, UInt32 length,
                                          SharedArray<typename Of::Row, Of::kRows>& rows) {
  constexpr UInt32 kLanes = kWarpSize / Of::kRows;
  const UInt32 warp_lane = threadIdx.x % kWarpSize;
  if constexpr (kIsRagged) {
    fill_rows<Of>(params, rows);  // clears the rest of a longer row
    __syncwarp();                 // the padding is written before the row
  }
  if (params.input_axis_stride == 1) {
    load_vectors<Of, kIsRagged>(input, params, start.input, length,
                                &rows[warp_lane / kLanes].vectors[0]);
  } else {
    // Neighbouring lanes load neighbouring elements, of one row or of neighbouring rows.
    const bool by_rows = params.loads_by_rows != 0;
    const UInt32 slot = by_rows ? warp_lane % Of::kRows : warp_lane / kLanes;
    const UInt32 first = by_rows ? warp_lane / Of::kRows : warp_lane % kLanes;
    const UInt32 end = kIsRagged ? __shfl_sync(kFullMask, length, slot * kLanes) : length;
    const Word* from = input + __shfl_sync(kFullMask, start.input, slot * kLanes);
    Word* to = reinterpret_cast<Word*>(&rows[slot].vectors[0]);
    constexpr UInt32 kAhead = 4;
#pragma unroll 1
    for (UInt32 begin = first; begin < end; begin += kAhead * kLanes) {
      Word ahead[kAhead];
#pragma unroll
      for (UInt32 a = 0; a < kAhead; ++a) {
        const UInt32 index = begin + a * kLanes;
        ahead[a] = 0;
        if (index < end) ahead[a] = from[index * params.input_axis_stride];
      }
#pragma unroll
      for (UInt32 a = 0; a < kAhead; ++a) {
        const UInt32 index = begin + a * kLanes;
        if (index < end) to[index] = ahead[a];
      }
    }
  }
  __syncwarp();  // the rows are complete before other lanes read them
}

// ---- Rows in parts, one part for each of several warps of a block.

// Items of a lane, and elements of a part.
constexpr int kPartItems = 32;
constexpr UInt32 kPartSlots = kPartItems * kWarpSize;

struct PartParams : FineParams {
  Int32 num_parts;
  Int32 part_length;  // the last part may be shorter
};

// The length of the row whose part `part` the warp has.
template <bool kIsRagged, int kWarpsOfBlock>
__device__ __forceinline__ UInt32 shared_row_length(const void* lengths, const PartParams& params,
                                                    const RowStart& start, UInt32 part,
                                                    SharedArray<UInt32, kWarpsOfBlock>& shared) {
  UInt32 length = static_cast<UInt32>(row_length<kIsRagged>(lengths, params, start));
  if constexpr (kIsRagged) {
    UInt32& own = shared[threadIdx.x / kWarpSize - part];
    if (part == 0 && threadIdx.x % kWarpSize == 0) own = length;
    __syncthreads();  // the length is written before the row's other threads read it
    length = own;     // it may have changed between two reads, and all must agree
  }
  return length;
}
