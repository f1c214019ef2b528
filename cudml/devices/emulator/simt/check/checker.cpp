#include "checker.h"

#include <algorithm>
#include <cstring>

#include "../runtime/errors.h"
#include "../runtime/module.h"
#include "../runtime/observer.h"

namespace simt::check {

Checker* checker = nullptr;

namespace {

constexpr size_t kMaxReports = 12;
// The maximum distance from a buffer at which an address is described relative to it.
constexpr ptrdiff_t kNear = 65536;

const char* access_name(bool is_write, Kind kind) {
  if (kind == Kind::kAtomic) return is_write ? "atomic write" : "atomic read";
  return is_write ? "write" : "read";
}

}  // namespace

Checker::Checker(Worker& worker)
    : worker_(worker), spec_(*worker.launch->spec), data_(*spec_.check) {
  for (uint64_t i = 0; i < data_.num_regions; i++) {
    SimtRegion& region = data_.regions[i];
    auto memory = std::make_unique<Memory>();
    memory->range = {region.start, region.bytes};
    memory->name = region.name;
    memory->initialised = region.initialised;
    memory->writable = region.writable;
    memory->traffic = &region.traffic;
    memory->shadow.reserve(region.bytes);
    memory->skew = reinterpret_cast<uintptr_t>(region.start) % 4;
    buffers_.push_back(std::move(memory));
  }
  for (unsigned i = 0; i < worker.launch->group_blocks; i++) {
    auto memory = std::make_unique<Memory>();
    memory->name = "shared storage";
    memory->is_shared = true;
    memory->traffic = &data_.shared;
    memory->shadow.reserve(spec_.shared_bytes);
    shared_.push_back(std::move(memory));
    shared_initialised_.emplace_back(spec_.shared_bytes);
    orders_.push_back(std::make_unique<BlockOrder>());
    meters_.push_back(std::make_unique<Meter>());
  }
  const Module module(*worker.launch->kernel);
  module_ = module.base();
  module.for_each_part(
      [this](const unsigned char* start, size_t bytes) { harmless_.push_back({start, bytes}); });
  void** arguments = worker.launch->arguments;
  const unsigned long long* argument_bytes = worker.launch->kernel->argument_bytes;
  size_t num_arguments = 0;
  for (; argument_bytes[num_arguments]; num_arguments++)
    harmless_.push_back(
        {static_cast<unsigned char*>(arguments[num_arguments]), argument_bytes[num_arguments]});
  harmless_.push_back({reinterpret_cast<unsigned char*>(arguments), num_arguments * sizeof(void*)});
  const auto variable = [this](const void* start, size_t bytes) {
    harmless_.push_back({static_cast<const unsigned char*>(start), bytes});
  };
  for (const uint3* v : {&threadIdx, &blockIdx, &blockDim, &gridDim}) variable(v, sizeof *v);
  variable(&simt_promoted, sizeof simt_promoted);
  variable(&simt_shared, sizeof simt_shared);
  variable(&simt_shared_bytes, sizeof simt_shared_bytes);
}

// ---- From the runtime

void Checker::block_begins(unsigned resident) {
  const Block& block = *worker_.blocks[resident];
  Memory& memory = *shared_[resident];
  memory.range = {block.shared, spec_.shared_bytes};
  memory.shadow.next_generation();
  std::vector<unsigned char>& initialised = shared_initialised_[resident];
  std::fill(initialised.begin(), initialised.end(), 0);
  memory.initialised = initialised.data();
  orders_[resident]->begin(block.index, block.num_threads);
  if (data_.use_meter) meters_[resident]->begin_block(block.num_threads);
}

void Checker::block_ends(unsigned resident) {
  if (data_.use_meter) meters_[resident]->flush();
  if (spec_.cluster_blocks == 1) return;
  // Its shared storage goes away when all its threads have ended, as if one of them wrote it then.
  BlockOrder& order = *orders_[resident];
  order.block_barrier();
  Memory& memory = *shared_[resident];
  Stamp other;
  const Access end = {0, 0, Kind::kPlain, true};
  const size_t bytes = memory.range.bytes;
  if (!bytes || memory.shadow.touch(order, memory.skew, bytes, end, &other) == Conflict::kNone)
    return;
  if (reports_.size() >= kMaxReports || !reported_.emplace(other.place, "end").second) return;
  const std::string by = thread_text(other.block, other.thread);
  reports_.push_back(place_text(other.place) + ": race: this access and the end of block " +
                     std::to_string(order.index) + ", whose " + memory.name +
                     " it is, are not ordered [" + by + "]");
}

void Checker::block_barrier(const Block&) {
  order().block_barrier();
  data_.block_barriers++;
  if (data_.use_meter) meters_[worker_.resident]->flush();
}

void Checker::named_barrier(const Block&, const uint32_t* waiting) {
  order().named_barrier(waiting);
  data_.block_barriers++;
}

void Checker::cluster_barrier() {
  std::vector<BlockOrder*> blocks;
  for (unsigned i = 0; i < worker_.num_resident; i++) {
    blocks.push_back(orders_[i].get());
    if (data_.use_meter) meters_[i]->flush();
  }
  check::cluster_barrier(blocks);
  data_.block_barriers += blocks.size();
}

void Checker::warp_collective(unsigned warp, uint32_t lanes, bool orders_memory) {
  if (orders_memory) order().warp_barrier(warp, lanes);
  data_.warp_collectives++;
}

std::string Checker::take_reports() {
  std::string text;
  for (const std::string& report : reports_)
    text += (text.empty() ? "" : std::string(1, kReportSeparator)) + report;
  reports_.clear();
  return text;
}

// ---- From the kernel's code

void Checker::plain(const void* pc, const void* address, size_t bytes, bool is_write) {
  const Where where = locate(pc, address, bytes, is_write);
  if (!where.memory) return;
  if (data_.use_meter)
    meters_[worker_.resident]->record(where.memory->traffic, current_thread(), place_of(pc),
                                      where.offset, static_cast<unsigned>(bytes), is_write,
                                      where.memory->is_shared);
  touch(where, pc, bytes, Kind::kPlain, is_write);
}

void Checker::before_atomic(const void* pc, const void* address, size_t bytes, bool reads,
                            bool writes, int memory_order) {
  const Where where = locate(pc, address, bytes, writes);
  if (where.memory) {
    if (reads && writes) where.memory->traffic->atomics++;
    if (data_.use_meter && reads != writes)
      meters_[worker_.resident]->record(where.memory->traffic, current_thread(), place_of(pc),
                                        where.offset, static_cast<unsigned>(bytes), writes,
                                        where.memory->is_shared);
    if (reads) touch(where, pc, bytes, Kind::kAtomic, false);
    if (writes) touch(where, pc, bytes, Kind::kAtomic, true);
  }
  if (writes) releases_.before_write(order(), current_thread(), address, reads, memory_order);
}

void Checker::after_atomic(const void* address, bool reads, int memory_order) {
  if (reads) releases_.after_read(order(), current_thread(), address, memory_order);
}

void Checker::fence() { order().fence(current_thread()); }

void Checker::misaligned(const void* pc, const void* address, size_t alignment) {
  misaligned_at(place_text(place_of(pc)), address, alignment);
}

void Checker::misaligned_at(const std::string& place, const void* address, size_t alignment) {
  fail(Place{}, place + ": misaligned access: " +
                    format("the address 0x%llx must be a multiple of %zu",
                           static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(address)),
                           alignment));
}

void Checker::bad_index(const void* pc, long long index, long long size) {
  bad_index(place_text(place_of(pc)), format("%lld in an array of %lld", index, size));
}

void Checker::bad_index(const std::string& place, const std::string& what) {
  fail(Place{}, place + ": index out of bounds: " + what);
}

// ---- The target of an access

Checker::Where Checker::locate(const void* pc, const void* address, size_t bytes, bool is_write) {
  // One look decides: an interruption between two would end the launch without a place.
  if (worker_.watched.due) attend(worker_, static_cast<const unsigned char*>(pc) - 1);
  const Context& stack = *worker_.running;
  if (Range{reinterpret_cast<unsigned char*>(stack.bottom),
            static_cast<size_t>(stack.top - stack.bottom)}
          .contains(address, 1))
    return {nullptr, 0};
  const auto in = [&](Memory& memory) -> Where {
    return {&memory,
            static_cast<size_t>(static_cast<const unsigned char*>(address) - memory.range.start)};
  };
  Memory& own = *shared_[worker_.resident];
  if (own.range.contains(address, bytes)) return in(own);
  if (last_buffer_ < buffers_.size() && buffers_[last_buffer_]->range.contains(address, bytes))
    return in(*buffers_[last_buffer_]);
  for (size_t i = 0; i < buffers_.size(); i++)
    if (buffers_[i]->range.contains(address, bytes)) {
      last_buffer_ = i;
      return in(*buffers_[i]);
    }
  if (spec_.cluster_blocks > 1)
    for (auto& other : shared_)
      if (other->range.contains(address, bytes)) return in(*other);
  for (const Range& range : harmless_)
    if (range.contains(address, bytes)) return {nullptr, 0};
  out_of_bounds(pc, address, bytes, is_write);
}

void Checker::touch(const Where& where, const void* pc, size_t bytes, Kind kind, bool is_write) {
  Memory& memory = *where.memory;
  const uint32_t place = place_of(pc);
  const unsigned thread = current_thread();
  if (is_write && !memory.writable)
    note(place, "input", std::string("a write to an input; ") + offset_text(memory, where.offset));
  if (memory.initialised) {
    unsigned char* const first = memory.initialised + where.offset;
    if (is_write) {
      std::memset(first, 1, bytes);
    } else if (std::memchr(first, 0, bytes)) {
      note(place, "uninitialised",
           "read of memory that was never written; " + offset_text(memory, where.offset));
      std::memset(first, 1, bytes);
    }
  }
  Stamp other;
  const Conflict conflict = memory.shadow.touch(order(), where.offset + memory.skew, bytes,
                                                {thread, place, kind, is_write}, &other);
  if (conflict == Conflict::kNone) return;
  const bool other_writes = conflict != Conflict::kWriteAfterRead;
  note(place, "race",
       std::string("race: this ") + access_name(is_write, kind) + " and an earlier " +
           access_name(other_writes, other.kind) + " by " + thread_text(other.block, other.thread) +
           " at " + place_text(other.place) + " are not ordered; " +
           offset_text(memory, where.offset));
}

void Checker::out_of_bounds(const void* pc, const void* address, size_t bytes, bool is_write) {
  const auto* at = static_cast<const unsigned char*>(address);
  std::string nearest = at < reinterpret_cast<const unsigned char*>(4096) ? "at a null pointer"
                                                                          : "far from any buffer";
  ptrdiff_t distance = kNear;
  const auto consider = [&](const Memory& memory) {
    const ptrdiff_t offset = at - memory.range.start;
    const auto size = static_cast<ptrdiff_t>(memory.range.bytes);
    const ptrdiff_t away =
        offset < 0 ? -offset
                   : std::max<ptrdiff_t>(0, offset + static_cast<ptrdiff_t>(bytes) - size);
    if (away >= distance) return;
    distance = away;
    nearest =
        format("at byte offset %td of %s, which has %td bytes", offset, memory.name.c_str(), size);
  };
  for (const auto& buffer : buffers_) consider(*buffer);
  for (const auto& shared : shared_) consider(*shared);
  fail(Place{}, place_text(place_of(pc)) + ": out-of-bounds " + (is_write ? "write" : "read") +
                    format(" of %zu bytes ", bytes) + nearest);
}

// ---- Reports

void Checker::note(uint32_t place, const char* kind, const std::string& text) {
  if (reports_.size() >= kMaxReports || !reported_.emplace(place, kind).second) return;
  reports_.push_back(place_text(place) + ": " + text + " [" +
                     thread_text(order().index, current_thread()) + "]");
}

// The call is before the return address.
uint32_t Checker::place_of(const void* pc) const {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(pc) - 1 - module_);
}

std::string Checker::interrupted_place(const void* pc) const {
  return place_text(static_cast<uint32_t>(static_cast<const unsigned char*>(pc) - module_)) + ": ";
}

// Python replaces this by file and line.
std::string Checker::place_text(uint32_t place) const { return format("{pc %x}", place); }

std::string Checker::thread_text(uint32_t block, unsigned thread) const {
  const uint3 b = position(spec_.grid, block), t = position(spec_.block, thread);
  return format("block (%u,%u,%u) thread (%u,%u,%u)", b.x, b.y, b.z, t.x, t.y, t.z);
}

std::string Checker::offset_text(const Memory& memory, size_t offset) const {
  return format("byte offset %zu of %s", offset, memory.name.c_str());
}

unsigned Checker::current_thread() const {
  return worker_.block->promoted
             ? worker_.block->current
             : threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

}  // namespace simt::check

namespace simt::observe {

void launch_begins(Worker& worker) { check::checker = new check::Checker(worker); }

void launch_ends(Worker& worker) {
  const std::string reports = check::checker->take_reports();
  if (!reports.empty()) add_reports(*worker.launch, reports);
  delete check::checker;
  check::checker = nullptr;
}

void block_begins(Worker&, unsigned resident) { check::checker->block_begins(resident); }
void block_ends(Worker&, unsigned resident) { check::checker->block_ends(resident); }
void block_barrier(Worker&, const Block& block) { check::checker->block_barrier(block); }
void named_barrier(Worker&, const Block& block, const uint32_t* waiting) {
  check::checker->named_barrier(block, waiting);
}
void cluster_barrier(Worker&) { check::checker->cluster_barrier(); }
void warp_collective(Worker&, const Block&, unsigned warp, uint32_t lanes, bool orders_memory) {
  check::checker->warp_collective(warp, lanes, orders_memory);
}
std::string interrupted_place(const void* pc) { return check::checker->interrupted_place(pc); }

}  // namespace simt::observe
