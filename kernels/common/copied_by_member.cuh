// How a struct with padding is copied. The CPU emulator has a file of the same name.
#pragma once

// The emulator copies the two members only, because its check mode would report a copy of padding as a read
// of memory that was never written. A GPU copies the struct whole, in one access.
#define COPIED_BY_MEMBER(Type, first, second)
