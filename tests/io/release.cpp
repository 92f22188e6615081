// SPDX-License-Identifier: MIT
// Tensors of mapped files that leave the memory of the process.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <functional>

#include "gguf_bytes.hpp"
#include "kformer/io/checkpoint.hpp"
#include "kformer/io/safetensors.hpp"
#include "large_nf4.hpp"
#include "resident.hpp"
#include "scratch_directory.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

constexpr std::size_t size = std::size_t(16) << 20, little = std::size_t(2) << 20;
constexpr const char* up = "model.layers.0.mlp.up_proj.weight";
const std::string contents(size, 'x');

bool all_are(std::span<const std::byte> bytes, char value) {
  return std::ranges::all_of(bytes, [value](std::byte byte) { return byte == std::byte(value); });
}

/// Reads a tensor, releases it, and reads it again, when it must still be the same.
void check_release(const std::function<std::span<const std::byte>()>& read,
                   const std::function<void()>& release) {
  const std::size_t before = resident_bytes_of_files();
  BOOST_TEST(all_are(read(), 'x'));
  BOOST_TEST(resident_bytes_of_files() >= before + size - little);
  release();
  BOOST_TEST(resident_bytes_of_files() <= before + little);
  BOOST_TEST(all_are(read(), 'x'));
}

struct Fixture {
  ScratchDirectory directory;

  Checkpoint gguf(const std::string& tensor) const {
    GgufImage image = small_gguf_model();
    for (GgufTensorBytes& t : image.tensors)
      if (t.name == tensor) t = {tensor, {32, size / 128}, 0, contents};
    put_contents(directory / "model.gguf", image.bytes());
    return Checkpoint::open(directory / "model.gguf");
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(release, *boost::unit_test::precondition(counts_resident_files))

BOOST_FIXTURE_TEST_CASE(a_tensor_of_a_safetensors_file_leaves_the_memory, Fixture) {
  SafetensorsWriter writer;
  writer.add("x", "U8", {size}, contents.data());
  writer.write(directory / "x.safetensors");
  const auto file = SafetensorsFile::open(directory / "x.safetensors");
  check_release([&] { return file.at("x").bytes; }, [&] { file.release("x"); });
  BOOST_CHECK_THROW(file.release("y"), FileError);
}

BOOST_AUTO_TEST_CASE(bytes_of_the_caller_stay) {
  std::string bytes = R"({"x":{"dtype":"U8","shape":[)" + std::to_string(size) + R"(],"data_offsets":[0,)" +
                      std::to_string(size) + "]}}";
  bytes = raw<std::uint64_t>(bytes.size()) + bytes + contents;
  const auto file = SafetensorsFile::parse(std::as_bytes(std::span(bytes)), "x.safetensors");
  file.release("x");
  BOOST_TEST(all_are(file.at("x").bytes, 'x'));
}

BOOST_FIXTURE_TEST_CASE(a_tensor_of_a_gguf_file_leaves_the_memory, Fixture) {
  const Checkpoint checkpoint = gguf("blk.0.ffn_up.weight");
  check_release([&] { return checkpoint.at(up).bytes; }, [&] { checkpoint.release(up); });
  checkpoint.release("unknown");
}

BOOST_FIXTURE_TEST_CASE(a_quantised_tensor_of_a_folder_leaves_the_memory, Fixture) {
  put_contents(directory / "small.gguf", small_gguf_model().bytes());
  const auto small = Checkpoint::open(directory / "small.gguf");
  PackedCheckpointWriter writer(small);
  const std::string blocks(size / 34 * 34, 'x');
  for (const std::string& name : small.names())
    writer.add(name,
               name == up
                   ? CheckpointTensor{QuantizedFormat::q8_0, {size / 34, 32}, std::as_bytes(std::span(blocks))}
                   : small.at(name));
  writer.write(directory / "packed");
  const auto packed = Checkpoint::open(directory / "packed");
  check_release([&] { return packed.at(up).bytes; }, [&] { packed.release(up); });
}

// Rows of q are copied in another order on first access: the copy stays, and the file need not.
BOOST_FIXTURE_TEST_CASE(rows_in_another_order_are_in_memory_once, Fixture) {
  const Checkpoint checkpoint = gguf("blk.0.attn_q.weight");
  const std::size_t before = resident_bytes_of_files();
  const auto q = checkpoint.at("model.layers.0.self_attn.q_proj.weight").bytes;
  BOOST_TEST(resident_bytes_of_files() <= before + little);
  checkpoint.release("model.layers.0.self_attn.q_proj.weight");
  BOOST_TEST(all_are(q, 'x'));
}

// As above; bitsandbytes has the codes of a matrix apart from its scales.
BOOST_FIXTURE_TEST_CASE(joined_codes_are_in_memory_once, Fixture) {
  put_large_nf4(KFORMER_SOURCE_DIR "/tests/data/nf4_case/llama", directory, size);
  const auto checkpoint = Checkpoint::open(directory.path());
  const std::size_t before = resident_bytes_of_files();
  const std::size_t copied = resident_bytes_of_copies(), bytes = checkpoint.layout(large_matrix).bytes;
  BOOST_TEST(resident_bytes_of_copies() <= copied + little);
  BOOST_TEST(checkpoint.at(large_matrix).bytes.size() == bytes);
  BOOST_TEST(bytes > size);
  BOOST_TEST(resident_bytes_of_files() <= before + little);
}

BOOST_AUTO_TEST_SUITE_END()
