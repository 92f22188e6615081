// SPDX-License-Identifier: MIT
// NF4 against what bitsandbytes makes of the same weights, to the bit: see scripts/make_nf4_case. KFORMER_NF4_CASE names
// another file of that script.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "kformer/io/checkpoint.hpp"
#include "kformer/io/safetensors.hpp"
#include "ops/nf4_cases.hpp"
#include "support/source_files.hpp"

namespace kformer::Testing {
namespace {

SafetensorsFile nf4_file() {
  const char* other = std::getenv("KFORMER_NF4_CASE");
  return SafetensorsFile::open(other ? other : test_data("nf4_case/nf4_case.safetensors"));
}

/// The matrices of the file by name.
std::set<std::string> matrices_of(const SafetensorsFile& file) {
  std::set<std::string> names;
  for (const std::string& name : file.names()) names.insert(name.substr(0, name.find('.')));
  return names;
}

/// What bitsandbytes wrote, as Kformer lays it out.
std::vector<std::uint8_t> bytes_of(const SafetensorsFile& file, const std::string& name) {
  std::vector<std::uint8_t> bytes;
  const auto append = [&](const std::string& part, std::size_t first, std::size_t count) {
    const auto* from = reinterpret_cast<const std::uint8_t*>(file.at(name + part).bytes.data());
    bytes.insert(bytes.end(), from + first, from + first + count);
  };
  for (std::size_t block = 0; block < file.at(name + ".absmax_codes").bytes.size(); ++block) {
    append(".absmax_codes", block, 1);
    append(".codes", 32 * block, 32);
  }
  append(".offset", 0, 4);
  append(".nested", 0, file.at(name + ".nested").bytes.size());
  return bytes;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nf4_case)

BOOST_AUTO_TEST_CASE(the_bytes_are_those_of_bitsandbytes) {
  const SafetensorsFile file = nf4_file();
  std::size_t weights = 0;
  for (const std::string& name : matrices_of(file)) {
    const auto& shape = file.at(name + ".x").shape;
    const auto rows = static_cast<std::int64_t>(shape.at(0)), cols = static_cast<std::int64_t>(shape.at(1));
    const auto values = file.read_f64(name + ".x");
    TestTensor<Exec, float> x({rows, cols});
    x.fill([&](std::size_t i) { return static_cast<float>(values[i]); });
    const QuantizedWeights w(QuantizedFormat::nf4, rows, cols);
    quantize(Exec(), x.view<2>(), w.output());
    BOOST_TEST((bytes_of(w) == bytes_of(file, name)), name);
    BOOST_TEST((ref::quantize_nf4(x.read<float>()) == bytes_of(file, name)), name << ", reference");
    weights += values.size();
  }
  BOOST_TEST_MESSAGE(weights << " weights");
  BOOST_TEST(weights > 10000u);
}

BOOST_AUTO_TEST_CASE(the_weights_are_those_of_bitsandbytes) {
  const SafetensorsFile file = nf4_file();
  std::size_t weights = 0;
  for (const std::string& name : matrices_of(file)) {
    if (!file.find(name + ".weights")) continue;
    const auto& entry = file.at(name + ".weights");
    const auto rows = static_cast<std::int64_t>(entry.shape.at(0)),
               cols = static_cast<std::int64_t>(entry.shape.at(1));
    QuantizedWeights w(QuantizedFormat::nf4, rows, cols);
    const auto bytes = bytes_of(file, name);
    w.bytes.fill([&](std::size_t i) { return bytes[i]; });
    TestTensor<Exec, float> y({rows, cols}, Rows::packed);
    const Impl::Dequantize problem{w.matrix(), y.ref()};
    test_every_kernel(problem, {&y}, [&](const std::string& kernel) {
      const auto got = y.read<float>();
      // Bits, except that 0 may have either sign.
      const auto* expected = reinterpret_cast<const float*>(entry.bytes.data());
      BOOST_TEST(std::equal(got.values().begin(), got.values().end(), expected), name << ' ' << kernel);
    });
    weights += static_cast<std::size_t>(rows * cols);
  }
  BOOST_TEST(weights > 2000u);
}

// A folder that transformers and bitsandbytes wrote.
BOOST_AUTO_TEST_CASE(a_checkpoint_of_bitsandbytes_has_its_weights) {
  const std::filesystem::path folder = test_data("nf4_case/llama");
  const Checkpoint checkpoint = Checkpoint::open(folder);
  checkpoint.check_against(checkpoint.model());
  const auto expected = SafetensorsFile::open(folder / "expected.safetensors");
  BOOST_TEST(expected.names().size() == 2u);
  for (const std::string& name : expected.names()) {
    const CheckpointTensor& tensor = checkpoint.at(name);
    BOOST_REQUIRE((tensor.type == StoredType(QuantizedFormat::nf4)));
    QuantizedWeights w(QuantizedFormat::nf4, static_cast<std::int64_t>(tensor.shape.at(0)),
                       static_cast<std::int64_t>(tensor.shape.at(1)));
    w.bytes.fill([&](std::size_t i) { return static_cast<int>(tensor.bytes[i]); });
    BOOST_TEST(dequantized(w) == expected.read_f64(name), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
