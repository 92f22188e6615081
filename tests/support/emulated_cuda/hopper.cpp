// SPDX-License-Identifier: MIT
// The instructions of sm_90a on the emulated block, from the descriptions of the PTX ISA. What is in flight is
// seen as late as the machine may show it, and touching it before is an error.
#include <algorithm>
#include <array>
#include <limits>

#include "ops/common/cuda/hopper_instructions.hpp"

namespace kformer::Impl::cuda {

using emulation::Block;
using emulation::fail;

namespace {

// The state of a barrier is in its eight bytes of shared memory.
struct Barrier {
  std::uint64_t made : 16, phase : 1, count : 12, pending : 12;
  std::int64_t bytes : 23;
};
static_assert(sizeof(Barrier) == 8);
constexpr std::uint64_t made = 0x6d62;

Barrier& barrier_at(SharedAddress address) {
  auto& barrier = *reinterpret_cast<Barrier*>(Block::current().shared(address, 8));
  if (barrier.made != made) fail("a barrier is used before it is initialised");
  return barrier;
}
void end_phase(Barrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  barrier.phase = ~barrier.phase;
  barrier.pending = barrier.count;
}

// Addresses under a swizzle: of 128 bytes bits 4-6 are changed by bits 7-9, of 64 bytes bits 4-5 by bits 7-8.
SharedAddress swizzled(SharedAddress address, int swizzle_bytes) {
  return address ^ (address >> 7 & (swizzle_bytes == 128 ? 7U : 3U)) << 4;
}

// PTX ISA, wgmma, "matrix descriptor format", and the canonical layouts under the swizzles of 128 and 64 bytes.
class Matrix {
 public:
  explicit Matrix(std::uint64_t descriptor) {
    const auto decoded = [&](int bit) { return static_cast<SharedAddress>(descriptor >> bit & 0x3fff) << 4; };
    if (descriptor >> 62 != 1 && descriptor >> 62 != 2)
      fail("the emulation supports only the swizzles of 128 and 64 bytes");
    m_swizzle = descriptor >> 62 == 1 ? 128 : 64;
    if ((descriptor >> 49 & 7) != 0) fail("a matrix in shared memory has a base offset");
    m_start = decoded(0), m_leading = decoded(16), m_stride = decoded(32);
  }
  // k dense: atoms of 8 rows of as many bytes as the swizzle has, `stride` apart; there is no leading offset.
  std::uint16_t k_major(int row, int k) const {
    return read(static_cast<SharedAddress>(row % 8 * m_swizzle + 2 * k) +
                static_cast<SharedAddress>(row / 8) * m_stride);
  }
  // Rows dense: atoms of 64 or 32 rows by 8 k, `leading` apart along rows and `stride` apart along k.
  std::uint16_t row_major(int row, int k) const {
    const int rows = m_swizzle / 2;
    return read(static_cast<SharedAddress>(k % 8 * m_swizzle + row % rows * 2) +
                static_cast<SharedAddress>(row / rows) * m_leading +
                static_cast<SharedAddress>(k / 8) * m_stride);
  }

 private:
  std::uint16_t read(SharedAddress offset) const {
    return load_shared<std::uint16_t>(swizzled(m_start + offset, m_swizzle));
  }
  int m_swizzle;
  SharedAddress m_start, m_leading, m_stride;
};

// What one thread needs for its accumulators: two rows of a, columns / 4 columns of b.
template <int columns>
struct Operands {
  std::uint16_t a[2][16], b[columns / 4][16];
  bool operator==(const Operands&) const = default;
};

int lane() { return thread_index() % emulation::warp_threads; }
int column_of(int n) { return n / 2 * 8 + 2 * (lane() % 4) + n % 2; }

template <Half type, int columns>
void add_product(float (&c)[columns / 8][4], const Operands<columns>& of) {
  const auto widen = [](const std::uint16_t(&bits)[16], double(&x)[16]) {
    for (int k = 0; k < 16; ++k) x[k] = static_cast<double>(unpack<type>(bits[k]));
  };
  double a[2][16], b[16];
  for (int half = 0; half < 2; ++half) widen(of.a[half], a[half]);
  for (int n = 0; n < columns / 4; ++n) {
    widen(of.b[n], b);
    for (int half = 0; half < 2; ++half) {
      float& sum = c[n / 2][2 * half + n % 2];
      double product = 0;
      for (int k = 0; k < 16; ++k) product += a[half][k] * b[k];
      sum = static_cast<float>(static_cast<double>(sum) + product);
    }
  }
}

// `read` gives the operands as they are when it is called. They have to stay until the product is waited for;
// until then its accumulators are NaN.
template <Half type, int columns, class Read>
void multiply_later(float (&c)[columns / 8][4], bool add, Read read) {
  Block& block = Block::current();
  if (!block.fenced()) fail("registers of a product are not fenced");
  using Sums = std::array<float, columns / 2>;
  constexpr std::uint32_t in_flight = 0x7fc0dead;
  std::vector<const void*>& accumulators = block.accumulators();
  const bool first = std::count(accumulators.begin(), accumulators.end(), &c) == 0;
  accumulators.push_back(&c);
  Sums before;
  std::memcpy(before.data(), &c, sizeof(c));
  if (first) std::fill(&c[0][0], &c[0][0] + columns / 2, bits_as_float(in_flight));
  block.later(
      [=, &c, at_first = read()] {
        if (first) {
          for (const auto& sums : c)
            for (const float sum : sums)
              if (float_as_bits(sum) != in_flight) fail("accumulators of a product in flight were written");
          std::memcpy(&c, before.data(), sizeof(c));
        }
        if (!add) std::fill(&c[0][0], &c[0][0] + columns / 2, 0.0f);
        if (!(read() == at_first)) fail("operands of a product in flight changed");
        add_product<type, columns>(c, at_first);
        auto& all = Block::current().accumulators();
        all.erase(std::find(all.begin(), all.end(), &c));
      },
      emulation::Flight::products);
}

}  // namespace

void init_barrier(SharedAddress address, int arrivals) {
  const auto count = static_cast<std::uint64_t>(arrivals);
  store_shared(address, Barrier{made, 0, count, count, 0});
}

void arrive(SharedAddress address) { arrive_and_expect(address, 0); }

void arrive_and_expect(SharedAddress address, int bytes) {
  Barrier& barrier = barrier_at(address);
  if (barrier.pending == 0) fail("more threads arrive at a barrier than it counts");
  barrier.bytes += bytes;
  --barrier.pending;
  end_phase(barrier);
  Block::current().wait_until([] { return true; });
}

void wait_phase(SharedAddress address, int parity) {
  Block::current().wait_until([&] {
    const auto ended = [&] { return barrier_at(address).phase != static_cast<std::uint64_t>(parity); };
    if (!ended()) Block::current().deliver(address);
    return ended();
  });
}

void copy_tile(SharedAddress to, const TensorMap& map, SharedAddress barrier, int c0, int c1, int c2, int c3) {
  const TensorShape shape = map.shape;
  if (to % 128 != 0) fail("a tile is copied to an address that is not aligned");
  if (shape.box[2] != 1 || shape.box[3] != 1) fail("the emulation copies only two-dimensional boxes");
  Block& block = Block::current();
  const auto rows = static_cast<int>(shape.box[1]), features = static_cast<int>(shape.box[0]);
  const int row_bytes = 2 * features;
  for (int i = 0; i < row_bytes / 16 * rows; ++i)
    std::memset(block.shared(to + static_cast<SharedAddress>(16 * i), 16), 0xff, 16);
  block.deliver_later(barrier, [=] {
    const auto inside = [&](int i, std::int64_t c) {
      return c >= 0 && static_cast<std::uint64_t>(c) < shape.extent[i];
    };
    for (int row = 0; row < rows; ++row)
      for (int i = 0; i < features; ++i) {
        const std::int64_t at[4] = {c0 + i, c1 + row, c2, c3};
        std::uint16_t value = 0;
        if (inside(0, at[0]) && inside(1, at[1]) && inside(2, at[2]) && inside(3, at[3])) {
          const std::byte* from = static_cast<const std::byte*>(shape.data) + 2 * at[0];
          for (int d = 1; d < 4; ++d) from += at[d] * static_cast<std::int64_t>(shape.stride_bytes[d]);
          std::memcpy(&value, from, sizeof(value));
        }
        store_shared(swizzled(to + static_cast<SharedAddress>(row_bytes * row + 2 * i), row_bytes), value);
      }
    Barrier& told = barrier_at(barrier);
    told.bytes -= row_bytes * rows;
    end_phase(told);
  });
}

template <Half type, int columns>
void multiply_shared(float (&c)[columns / 8][4], std::uint64_t a, std::uint64_t b, bool add) {
  multiply_later<type, columns>(c, add, [a = Matrix(a), b = Matrix(b)] {
    Operands<columns> of;
    const int first = thread_index() % warpgroup_threads / 32 * 16 + lane() / 4;
    for (int k = 0; k < 16; ++k) {
      for (int half = 0; half < 2; ++half) of.a[half][k] = a.k_major(first + 8 * half, k);
      for (int n = 0; n < columns / 4; ++n) of.b[n][k] = b.k_major(column_of(n), k);
    }
    return of;
  });
}

template <Half type, int columns>
void multiply_registers(float (&c)[columns / 8][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  struct Registers {
    std::uint32_t of[4];
  };
  Registers mine;
  std::memcpy(&mine, &a, sizeof(mine));
  const Registers* quad = Block::current().exchange(mine) + lane() / 4 * 4;
  std::array<Registers, 4> all;
  std::copy(quad, quad + 4, all.begin());
  multiply_later<type, columns>(c, true, [all, mine, &a, b = Matrix(b)] {
    if (std::memcmp(&mine, &a, sizeof(mine)) != 0) fail("registers of a product in flight were written");
    Operands<columns> of;
    for (int k = 0; k < 16; ++k) {
      for (int half = 0; half < 2; ++half)
        of.a[half][k] = static_cast<std::uint16_t>(all[k % 8 / 2].of[half + 2 * (k / 8)] >> 16 * (k % 2));
      for (int n = 0; n < columns / 4; ++n) of.b[n][k] = b.row_major(column_of(n), k);
    }
    return of;
  });
}

#define KFORMER_PRODUCTS_OF(type, columns)                                                               \
  template void multiply_shared<type, columns>(float(&)[(columns) / 8][4], std::uint64_t, std::uint64_t, \
                                               bool);                                                    \
  template void multiply_registers<type, columns>(float(&)[(columns) / 8][4], const std::uint32_t(&)[4], \
                                                  std::uint64_t);
#define KFORMER_PRODUCTS(columns)          \
  KFORMER_PRODUCTS_OF(Half::bf16, columns) \
  KFORMER_PRODUCTS_OF(Half::f16, columns)
KFORMER_PRODUCTS(64)
KFORMER_PRODUCTS(80)
KFORMER_PRODUCTS(96)
KFORMER_PRODUCTS(128)
KFORMER_PRODUCTS(256)
#undef KFORMER_PRODUCTS
#undef KFORMER_PRODUCTS_OF

}  // namespace kformer::Impl::cuda
