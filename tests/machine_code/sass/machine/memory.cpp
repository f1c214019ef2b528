// Counting what accesses cost.
#include "memory.h"

int wavefronts_of(const U64& addresses, Mask mask, int size, bool is_atomic) {
  const int group = size == 16 ? 8 : size == 8 ? 16 : 32;
  const int words = std::max(1, size / 4);
  int turns = 0;
  for (int first = 0; first < kLanes; first += group) {
    uint64_t seen[32][kLanes];  // the different words of each bank
    int in_bank[32] = {}, lanes_of_word[32][kLanes];
    int most = 0;
    for (int lane = first; lane < first + group; ++lane) {
      if (!(mask >> lane & 1)) continue;
      for (int word = 0; word < words; ++word) {
        const uint64_t place = addresses[lane] / 4 + word;
        const int bank = place % 32;
        int known = 0;
        while (known < in_bank[bank] && seen[bank][known] != place) ++known;
        if (known == in_bank[bank]) {
          seen[bank][in_bank[bank]] = place;
          lanes_of_word[bank][in_bank[bank]++] = 0;
        }
        ++lanes_of_word[bank][known];
        int here = in_bank[bank];
        if (is_atomic) {
          here = 0;
          for (int i = 0; i < in_bank[bank]; ++i) here += lanes_of_word[bank][i];
        }
        most = std::max(most, here);
      }
    }
    turns += most;
  }
  return turns;
}

int sectors_of(const U64& addresses, Mask mask, int size, uint64_t* sectors) {
  int count = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(mask >> lane & 1)) continue;
    const uint64_t sector = addresses[lane] / 32;
    int known = count;
    while (known && sectors[known - 1] != sector) --known;
    if (!known) sectors[count++] = sector;
  }
  (void)size;  // An aligned access of at most 16 bytes lies in one sector.
  return count;
}
