// SPDX-License-Identifier: MIT
#include "kformer/ops/swiglu.hpp"

#include "blocks/block_cases.hpp"
#include "passes/passes.hpp"

namespace kformer::perf {

namespace {

struct Shape {
  std::int64_t rows, hidden;
};

// The halves of the columns of one product, as in a layer.
template <class T>
struct Halves {
  Array<T**> both;

  auto gate() const { return columns(0); }
  auto up() const { return columns(both.extent(1) / 2); }

 private:
  auto columns(std::size_t first) const {
    return Kokkos::subview(both, Kokkos::ALL, std::pair(first, first + both.extent(1) / 2));
  }
};

template <class T>
class Forward {
 public:
  Forward(const Space& exec, std::uint64_t seed, const Shape& s)
      : m_in{random_array<T**>(exec, seed, "kformer::perf::gate_up", s.rows, 2 * s.hidden)},
        m_y("kformer::perf::y", s.rows, s.hidden) {}
  std::size_t bytes() const { return bytes_of(m_in.both, m_y); }
  void launch(const Space& exec) const { swiglu_forward(exec, m_in.gate(), m_in.up(), m_y); }

 private:
  Halves<T> m_in;
  Array<T**> m_y;
};

// silu(gate) to memory, then its product with up. The first pass is the library's kernel with a factor of one,
// which is a single row that stays in the caches.
template <class T>
class Unfused {
 public:
  Unfused(const Space& exec, std::uint64_t seed, const Shape& s)
      : m_in{random_array<T**>(exec, seed, "kformer::perf::gate_up", s.rows, 2 * s.hidden)},
        m_silu("kformer::perf::silu", s.rows, s.hidden),
        m_y("kformer::perf::y", s.rows, s.hidden),
        m_one(constant_array(T(compute_t<T>(1)), "kformer::perf::one", s.hidden)) {}
  std::size_t bytes() const { return bytes_of(m_in.both, m_silu, m_y); }
  void launch(const Space& exec) const {
    const Kokkos::View<T**, Kokkos::LayoutStride, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>> ones(
        m_one.data(), Kokkos::LayoutStride(m_y.extent(0), 0, m_y.extent(1), 1));
    swiglu_forward(exec, m_in.gate(), ones, m_silu);
    multiply(exec, tensor_ref(m_silu), tensor_ref(m_in.up()), tensor_ref(m_y));
  }

 private:
  Halves<T> m_in;
  Array<T**> m_silu, m_y;
  Array<T*> m_one;
};

template <class T>
class Backward {
 public:
  Backward(const Space& exec, std::uint64_t seed, const Shape& s)
      : m_in{random_array<T**>(exec, seed, "kformer::perf::gate_up", s.rows, 2 * s.hidden)},
        m_dy(random_array<T**>(exec, seed + 1, "kformer::perf::dy", s.rows, s.hidden)),
        m_out{Array<T**>("kformer::perf::dgate_up", s.rows, 2 * s.hidden)} {}
  std::size_t bytes() const { return bytes_of(m_in.both, m_dy, m_out.both); }
  void launch(const Space& exec) const {
    swiglu_backward(exec, m_in.gate(), m_in.up(), m_dy, m_out.gate(), m_out.up());
  }

 private:
  Halves<T> m_in;
  Array<T**> m_dy;
  Halves<T> m_out;
};

// The unfused form counts the bytes of the fused one: it does the same work.
template <template <class> class Call>
Case make_case(const char* block, const char* direction, int read, int written, DType dtype, const Shape& s) {
  return {.block = block,
          .direction = direction,
          .dtype = dtype,
          .tail = 'H' + std::to_string(s.hidden),
          .bytes = bytes_of_arrays(read + written, s.rows * s.hidden, dtype),
          .written = bytes_of_arrays(written, s.rows * s.hidden, dtype),
          .shape = {{"rows", s.rows}, {"hidden", s.hidden}},
          .make = rotating<Call>(dtype, s)};
}

template <template <class> class Call>
void add_cases(std::vector<Case>& cases, const BlockSizes& sizes, const char* block, const char* direction,
               int read, int written) {
  sizes.for_each_hidden([&](DType dtype, std::int64_t hidden) {
    cases.push_back(make_case<Call>(block, direction, read, written, dtype, {sizes.elements / hidden, hidden}));
  });
}

}  // namespace

std::vector<Case> swiglu_cases(const BlockSizes& sizes) {
  std::vector<Case> cases;
  add_cases<Forward>(cases, sizes, "swiglu", "forward", 2, 1);
  add_cases<Backward>(cases, sizes, "swiglu", "backward", 3, 2);
  add_cases<Unfused>(cases, sizes, "swiglu_unfused", "forward", 2, 1);
  return cases;
}

}  // namespace kformer::perf
