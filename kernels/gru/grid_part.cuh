// Shared by the kernels whose blocks exchange states: a cooperative grid runs a layer's steps. A group of
// blocks has some of the sequences, and each of its blocks (a shard) some hidden units of all of them.
#pragma once

#include "common/wait.cuh"
#include "gru/layer.cuh"

constexpr int kGridThreads = 256;
constexpr int kGridWarps = kGridThreads / kWarpSize;

// Numbers of the waits; `cudml/operators/gru/grids.py` has their names.
constexpr UInt32 kWaitForStates = 1;
constexpr UInt32 kWaitForLayers = 2;

struct alignas(16) SharedWords {
  UInt32 words[4];
};

// A block's part of a layer; blocks are ordered by direction, group and shard.
struct GridPart {
  int direction;
  Int64 first_sequence;
  Int64 num_sequences;
  int first_unit;

  __device__ __forceinline__ static GridPart of_block(const GruParams& params, int pass_units) {
    const int shard = blockIdx.x % params.num_shards;
    const int group = blockIdx.x / params.num_shards % params.num_groups;
    const int direction = blockIdx.x / params.num_shards / params.num_groups;
    const Int64 first = group * params.group_batch;
    return {direction, first, min(params.group_batch, params.batch_size - first),
            shard * params.num_passes * pass_units};
  }
};
