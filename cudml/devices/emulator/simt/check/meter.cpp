#include "meter.h"

#include <algorithm>
#include <tuple>

namespace simt::check {

namespace {

constexpr uint64_t kSectorBytes = 32, kBankBytes = 4, kNumBanks = 32;

// The banks serve 128 bytes at a time: 32 lanes of 4 bytes, 16 of 8, or 8 of 16.
unsigned lanes_per_pass(unsigned bytes) { return bytes <= 4 ? 32 : bytes <= 8 ? 16 : 8; }

}  // namespace

void Meter::begin_block(unsigned num_threads) {
  entries_.clear();
  occurrences_.assign(num_threads, {});
}

void Meter::record(SimtTraffic* traffic, unsigned thread, uint32_t place, uint64_t offset,
                   unsigned bytes, bool is_write, bool is_shared) {
  (is_write ? traffic->bytes_written : traffic->bytes_read) += bytes;
  const uint32_t occurrence = occurrences_[thread][place]++;
  entries_.push_back({traffic, offset, place, occurrence, bytes, static_cast<uint16_t>(thread),
                      is_write, is_shared});
}

void Meter::flush() {
  const auto request = [](const Entry& e) {
    return std::make_tuple(e.thread / kWarpSize, e.place, e.occurrence, e.is_write);
  };
  std::sort(entries_.begin(), entries_.end(), [&](const Entry& a, const Entry& b) {
    return std::make_tuple(request(a), a.thread) < std::make_tuple(request(b), b.thread);
  });
  for (size_t begin = 0; begin < entries_.size();) {
    size_t end = begin + 1;
    while (end < entries_.size() && request(entries_[end]) == request(entries_[begin])) end++;
    count_request(&entries_[begin], &entries_[begin] + (end - begin));
    begin = end;
  }
  entries_.clear();
  for (auto& thread : occurrences_) thread.clear();
}

void Meter::count_request(const Entry* begin, const Entry* end) {
  SimtTraffic& traffic = *begin->traffic;
  if (!begin->is_shared) {
    scratch_.clear();
    for (const Entry* e = begin; e != end; e++)
      for (uint64_t sector = e->offset / kSectorBytes;
           sector <= (e->offset + e->bytes - 1) / kSectorBytes; sector++)
        scratch_.push_back(sector);
    std::sort(scratch_.begin(), scratch_.end());
    const auto sectors =
        static_cast<uint64_t>(std::unique(scratch_.begin(), scratch_.end()) - scratch_.begin());
    (begin->is_write ? traffic.sectors_written : traffic.sectors_read) += sectors;
    (begin->is_write ? traffic.requests_written : traffic.requests_read)++;
    return;
  }
  // Shared storage: lanes that access different words of one bank wait for each other.
  (begin->is_write ? traffic.requests_written : traffic.requests_read)++;
  const unsigned lanes = lanes_per_pass(begin->bytes);
  while (begin != end) {
    const unsigned pass = begin->thread % kWarpSize / lanes;
    scratch_.clear();
    for (; begin != end && begin->thread % kWarpSize / lanes == pass; begin++)
      for (uint64_t word = begin->offset / kBankBytes;
           word <= (begin->offset + begin->bytes - 1) / kBankBytes; word++)
        scratch_.push_back(word);
    std::sort(scratch_.begin(), scratch_.end());
    scratch_.erase(std::unique(scratch_.begin(), scratch_.end()), scratch_.end());
    uint64_t words_of_bank[kNumBanks] = {}, most = 0;
    for (const uint64_t word : scratch_) most = std::max(most, ++words_of_bank[word % kNumBanks]);
    traffic.bank_conflicts += most - 1;
  }
}

}  // namespace simt::check
