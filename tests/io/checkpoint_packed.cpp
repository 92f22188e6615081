// SPDX-License-Identifier: MIT
#include <boost/test/unit_test.hpp>

#include "error_text.hpp"
#include "gguf_bytes.hpp"
#include "kformer/io/checkpoint.hpp"
#include "kformer/io/safetensors.hpp"
#include "scratch_directory.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

constexpr const char* up = "model.layers.0.mlp.up_proj.weight";  // (48, 32)

struct Fixture {
  ScratchDirectory directory;
  std::string blocks = std::string(48 * 66, 'q');

  Checkpoint source = [this] {
    put_contents(directory / "source.gguf", small_gguf_model().bytes());
    return Checkpoint::open(directory / "source.gguf");
  }();

  CheckpointTensor ternary() const {
    return {QuantizedFormat::tq2_0, {48, 32}, std::as_bytes(std::span(blocks))};
  }

  /// The source with one tensor replaced by a ternary one.
  PackedCheckpointWriter writer() const {
    PackedCheckpointWriter to(source);
    for (const auto& name : source.names()) to.add(name, name == up ? ternary() : source.at(name));
    return to;
  }

  std::string refusal(const std::string& text, const std::string& dtype = "U8", const std::string& name = up) {
    SafetensorsWriter file;
    file.metadata("kformer.quantized." + name, text);
    const std::size_t size = dtype == "U8" ? blocks.size() : blocks.size() / 4;
    file.add(up, dtype, {size}, blocks.data());
    put_contents(directory / "config.json", model_config_json(source.model()));
    file.write(directory / "model.safetensors");
    const std::string start = "'" + (directory / "model.safetensors").string() +
                              "': metadata 'kformer.quantized." + name + "' = \"" + text + "\": ";
    const std::string fault = file_error([&] { Checkpoint::open(directory.path()); });
    return fault.starts_with(start) ? fault.substr(start.size()) : fault;
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(checkpoint_packed, Fixture)

BOOST_AUTO_TEST_CASE(what_is_written_is_read_back) {
  writer().write(directory / "packed");
  const auto packed = Checkpoint::open(directory / "packed");
  packed.check_against(packed.model());
  BOOST_TEST((packed.format() == CheckpointFormat::packed));
  auto model = packed.model();
  model.config.clear();
  BOOST_TEST((model == source.model()));
  BOOST_TEST(packed.names() == source.names());
  BOOST_TEST(to_string(packed.at(up).type) == "TQ2_0");
  BOOST_TEST(packed.at(up).shape == (std::vector<std::size_t>{48, 32}));
  BOOST_TEST((packed.at(up).bytes.size() == blocks.size() && packed.at(up).bytes[99] == std::byte{'q'}));
  const auto& q = packed.at("model.layers.0.self_attn.q_proj.weight");
  const auto& expected = source.at("model.layers.0.self_attn.q_proj.weight");
  BOOST_TEST(std::equal(q.bytes.begin(), q.bytes.end(), expected.bytes.begin(), expected.bytes.end()));
}

BOOST_AUTO_TEST_CASE(the_files_of_a_folder_are_copied) {
  writer().write(directory / "one");
  put_contents(directory / "one/tokenizer.json", "{}");
  put_contents(directory / "one/notes.txt", "mine");
  const auto one = Checkpoint::open(directory / "one");
  PackedCheckpointWriter again(one);
  again.add(up, one.at(up));
  again.write(directory / "two");
  BOOST_TEST(contents_of(directory / "two/config.json") == contents_of(directory / "one/config.json"));
  BOOST_TEST(contents_of(directory / "two/tokenizer.json") == "{}");
  BOOST_TEST(!std::filesystem::exists(directory / "two/notes.txt"));
  const auto known = PackedCheckpointWriter::file_names();
  for (const auto& entry : std::filesystem::directory_iterator(directory / "two"))
    BOOST_TEST(std::count(known.begin(), known.end(), entry.path().filename().string()) == 1);
  BOOST_TEST(error_text([&] {
               again.write(directory / "one");
             }).ends_with("is the source folder and would be overwritten; name another"));
  BOOST_TEST(
      file_error([&] { again.write(directory / "one/notes.txt"); }).starts_with("cannot make the folder"));
}

BOOST_AUTO_TEST_CASE(formats_are_what_the_file_holds) {
  writer().write(directory / "packed");
  const std::string place = "'" + (directory / "packed").string() + "' has ";
  BOOST_TEST(file_error([&] { Checkpoint::open(directory / "packed", CheckpointFormat::safetensors); }) ==
             place + "quantised weights: its format is \"packed\", not \"safetensors\"");
  PackedCheckpointWriter plain(source);
  plain.add("x", source.at("model.norm.weight"));
  plain.write(directory / "plain");
  BOOST_TEST(file_error([&] {
               Checkpoint::open(directory / "plain", CheckpointFormat::packed);
             }).ends_with("has no quantised weights: its format is \"safetensors\", not \"packed\""));
  BOOST_TEST(file_error([&] {
               Checkpoint::open(directory / "plain/model.safetensors", CheckpointFormat::gguf);
             }).ends_with("it does not begin with \"GGUF\""));
}

BOOST_AUTO_TEST_CASE(lying_metadata_are_refused) {
  BOOST_TEST(refusal("TQ2_0 48 32") == "no error");
  BOOST_TEST(refusal("TQ2_0 48 256") == "no error");
  BOOST_TEST(refusal("TQ2_0 48 257") == "the tensor has 3168 bytes, expected 6336");
  BOOST_TEST(refusal("TQ1_0 48 32") == "the tensor has 3168 bytes, expected 2592");
  // 48 blocks of 66 bytes are 3168; 96 blocks of NF4 have a nested scale and an offset behind them.
  BOOST_TEST(refusal("NF4 48 128") == "the tensor has 3168 bytes, expected 3176");
  BOOST_TEST(refusal("NF4 1 32640") == "the tensor has 3168 bytes, expected 16842");
  BOOST_TEST(refusal("NF4 18446744073709551615 64") ==
             "the tensor has 3168 bytes, expected more than can be addressed");
  BOOST_TEST(refusal("TQ2_0 18446744073709551615 18446744073709551615") ==
             "the tensor has 3168 bytes, expected more than can be addressed");
  for (const std::string text :
       {"", "TQ2_0", "TQ2_0 48", "TQ2_0 48 32 1", "TQ2_0 -1 32", "TQ2_0 48 18446744073709551616", "F32 48 32",
        "Q4_K 48 32", "TQ2_0  48 32", "TQ2_0 48x 32"})
    BOOST_TEST(refusal(text) == "expected a quantised type and two extents, such as \"TQ2_0 64 256\"");
  BOOST_TEST(refusal("TQ2_0 48 32", "F32") == "the tensor is of type F32, expected U8");
  BOOST_TEST(refusal("TQ2_0 48 32", "U8", "other") == "the file has no such tensor");
}

BOOST_AUTO_TEST_CASE(tensors_that_cannot_be_written_are_errors) {
  PackedCheckpointWriter to(source);
  const std::string what = "kformer::PackedCheckpointWriter::add: tensor 'w' ";
  const auto add = [&](const CheckpointTensor& tensor) { return error_text([&] { to.add("w", tensor); }); };
  CheckpointTensor tensor = ternary();
  tensor.type = OtherType{"Q4_K"};
  BOOST_TEST(add(tensor) == what + "is of type 'Q4_K', expected F64, F32, F16, BF16 or a quantised type");
  tensor = ternary();
  tensor.shape = {48};
  BOOST_TEST(add(tensor) == what + "is quantised and has 1 extents, expected 2: (out, in)");
  tensor.shape = {47, 32};
  BOOST_TEST(add(tensor) == what + "has 3168 bytes, expected 3102");
  to.add("w", ternary());
  BOOST_TEST(add(ternary()) == what + "is added twice");
}

BOOST_AUTO_TEST_SUITE_END()
