// SPDX-License-Identifier: MIT
#include "kformer/io/gguf.hpp"

#include <boost/test/unit_test.hpp>

#include "error_text.hpp"
#include "gguf_bytes.hpp"
#include "scratch_directory.hpp"

namespace {

using kformer::GgufFile;
using namespace kformer::Testing;

GgufFile parse(const std::string& bytes) {
  return GgufFile::parse(std::as_bytes(std::span(bytes)), "model.gguf");
}

std::string refusal(const std::string& bytes) {
  return file_error([&] { parse(bytes); });
}

/// The reason after the name of the file.
std::string reason(const GgufImage& image) {
  const std::string start = "'model.gguf' is not a valid GGUF file: ";
  const std::string text = refusal(image.bytes());
  return text.starts_with(start) ? text.substr(start.size()) : text;
}

GgufImage with_metadata(const std::string& key, const std::string& value) {
  GgufImage image;
  image.metadata = {{key, value}};
  return image;
}

GgufImage with_tensor(GgufTensorBytes tensor) {
  GgufImage image;
  image.tensors = {std::move(tensor)};
  return image;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(gguf)

BOOST_AUTO_TEST_CASE(metadata_of_all_types_are_read) {
  GgufImage image;
  image.metadata = {{"u8", raw<std::uint32_t>(0) + raw<std::uint8_t>(200)},
                    {"i8", raw<std::uint32_t>(1) + raw<std::int8_t>(-100)},
                    {"u16", raw<std::uint32_t>(2) + raw<std::uint16_t>(60000)},
                    {"i16", raw<std::uint32_t>(3) + raw<std::int16_t>(-30000)},
                    {"u32", u32_value(4000000000)},
                    {"i32", raw<std::uint32_t>(5) + raw<std::int32_t>(-5)},
                    {"f32", f32_value(0.5F)},
                    {"bool", bool_value(1)},
                    {"text", text_value("héllo")},
                    {"empty", text_value("")},
                    {"texts", array_value(8, 2, raw_text("a") + raw_text("bc"))},
                    {"integers", array_value(5, 3, raw(1) + raw(-2) + raw(3))},
                    {"floats", array_value(6, 2, raw(0.25F) + raw(-1.F))},
                    {"nothing", array_value(4, 0, "")},
                    {"nested", array_value(9, 1, raw<std::uint32_t>(0) + raw<std::uint64_t>(2) + "ab")},
                    {"u64", raw<std::uint32_t>(10) + raw<std::uint64_t>(1ULL << 40)},
                    {"i64", raw<std::uint32_t>(11) + raw<std::int64_t>(-(1LL << 40))},
                    {"f64", raw<std::uint32_t>(12) + raw(0.1)},
                    {"huge", raw<std::uint32_t>(10) + raw<std::uint64_t>(~0ULL)}};
  const std::string bytes = image.bytes();
  const GgufFile file = parse(bytes);
  BOOST_TEST(file.keys().size() == image.metadata.size());
  BOOST_TEST(file.find_integer("u8").value() == 200);
  BOOST_TEST(file.find_integer("i8").value() == -100);
  BOOST_TEST(file.find_integer("u16").value() == 60000);
  BOOST_TEST(file.find_integer("i16").value() == -30000);
  BOOST_TEST(file.find_integer("u32").value() == 4000000000);
  BOOST_TEST(file.find_integer("i32").value() == -5);
  BOOST_TEST(file.find_integer("u64").value() == 1LL << 40);
  BOOST_TEST(file.find_integer("i64").value() == -(1LL << 40));
  BOOST_TEST(file.find_number("f32").value() == 0.5);
  BOOST_TEST(file.find_number("f64").value() == 0.1);
  BOOST_TEST(file.find_number("i32").value() == -5.0);
  BOOST_TEST(file.find_bool("bool").value());
  BOOST_TEST(file.find_string("text").value() == "héllo");
  BOOST_TEST(file.find_string("empty").value().empty());
  BOOST_TEST(file.find_strings("texts").value() == (std::vector<std::string>{"a", "bc"}));
  BOOST_TEST(file.find_integers("integers").value() == (std::vector<std::int64_t>{1, -2, 3}));
  BOOST_TEST(file.find_numbers("floats").value() == (std::vector<double>{0.25, -1}));
  BOOST_TEST(file.find_integers("nothing").value().empty());
  BOOST_TEST((file.has("nested") && file.has_array("nested") && !file.has_array("u8")));
  BOOST_TEST((!file.find_string("none") && !file.find_strings("none") && !file.has("none")));
}

BOOST_AUTO_TEST_CASE(metadata_of_another_type_are_errors) {
  const std::string bytes = [] {
    GgufImage image;
    image.metadata = {{"text", text_value("7")},
                      {"real", f32_value(1)},
                      {"huge", raw<std::uint32_t>(10) + raw<std::uint64_t>(~0ULL)},
                      {"texts", array_value(8, 0, "")}};
    return image.bytes();
  }();
  const GgufFile file = parse(bytes);
  BOOST_TEST(file_error([&] { file.find_integer("text"); }) ==
             "'model.gguf': metadata 'text' has another type, expected an integer");
  BOOST_TEST(file_error([&] { file.find_integer("real"); }) ==
             "'model.gguf': metadata 'real' has another type, expected an integer");
  BOOST_TEST(file_error([&] { file.find_string("texts"); }) ==
             "'model.gguf': metadata 'texts' has another type, expected a string");
  BOOST_TEST(file_error([&] { file.find_integer("huge"); }) ==
             "'model.gguf': metadata 'huge' is 18446744073709551615, which does not fit into a signed 64-bit "
             "integer");
  BOOST_TEST(file_error([&] { file.find_integers("texts"); }) ==
             "'model.gguf': metadata 'texts' has another type, expected an array of integers");
}

BOOST_AUTO_TEST_CASE(tensors_are_read_slowest_extent_first) {
  GgufImage image;
  image.metadata = {{"general.alignment", u32_value(64)}};
  image.alignment = 64;
  image.tensors = {{"a", {32, 2}, 8, std::string(68, 'a')},
                   {"b", {3}, 30, "123456"},
                   {"c", {0, 7}, 0, ""},
                   {"d", {256, 2}, 35, std::string(132, 'd')},
                   {"e", {256}, 34, std::string(54, 'e')}};
  const std::string bytes = image.bytes();
  const GgufFile file = parse(bytes);
  BOOST_TEST(file.names() == (std::vector<std::string>{"a", "b", "c", "d", "e"}));
  BOOST_TEST(to_string(file.find("a")->type) == "Q8_0");
  BOOST_TEST(file.find("a")->shape == (std::vector<std::size_t>{2, 32}));
  BOOST_TEST(file.find("a")->bytes.size() == 68U);
  BOOST_TEST(to_string(file.find("b")->type) == "BF16");
  BOOST_TEST((file.find("b")->bytes[5] == std::byte{'6'}));
  BOOST_TEST(file.find("c")->bytes.empty());
  BOOST_TEST(to_string(file.find("d")->type) == "TQ2_0");
  BOOST_TEST((file.find("d")->bytes[131] == std::byte{'d'}));
  BOOST_TEST(to_string(file.find("e")->type) == "TQ1_0");
  BOOST_TEST(file.find("f") == nullptr);
}

BOOST_AUTO_TEST_CASE(files_of_other_kinds_are_refused) {
  BOOST_TEST(refusal("") == "'model.gguf' is not a valid GGUF file: it does not begin with \"GGUF\"");
  BOOST_TEST(reason({.magic = "GGML"}) == "it does not begin with \"GGUF\"");
  BOOST_TEST(reason({.version = 2}) == "it has version 2, but only version 3 is supported; convert it");
  BOOST_TEST(reason({.version = 0x03000000}) == "it is big-endian; only little-endian files are supported");
  const ScratchDirectory directory;
  BOOST_TEST(file_error([&] { GgufFile::open(directory / "none.gguf"); }) ==
             "cannot read '" + (directory / "none.gguf").string() + "': No such file or directory");
}

BOOST_AUTO_TEST_CASE(lying_counts_and_lengths_are_refused) {
  constexpr std::uint64_t huge = ~0ULL;
  const std::string nothing = " at byte 24 takes 8 bytes, but only 0 follow; is the file truncated?";
  BOOST_TEST(reason({.alignment = 1, .tensor_count = huge}) == "the length of the name of a tensor" + nothing);
  BOOST_TEST(reason({.alignment = 1, .metadata_count = huge}) ==
             "the length of the key of a metadata value" + nothing);
  BOOST_TEST(reason(with_metadata("k", raw<std::uint32_t>(8) + raw(huge) + "ab")) ==
             "the value of 'k' at byte 45 takes 18446744073709551615 bytes, but only 19 follow; is the file "
             "truncated?");
  for (const std::uint32_t type : {0U, 4U, 7U, 8U, 9U, 12U})
    BOOST_TEST(reason(with_metadata("k", array_value(type, huge / 2, ""))).find("is the file truncated?") !=
               std::string::npos);
  // 2^61 + 1 elements of 8 bytes: 8 bytes to who multiplies in 64 bits.
  BOOST_TEST(
      reason(with_metadata("k", array_value(10, (1ULL << 61) + 1, raw<std::uint64_t>(0)))) ==
      "the value of 'k' at byte 49 takes 2305843009213693953 times 8 bytes, but only 15 follow; is the file "
      "truncated?");
  BOOST_TEST(reason(with_metadata("k", raw<std::uint32_t>(13))) == "the value of 'k' has the unknown type 13");
  BOOST_TEST(reason(with_metadata("k", bool_value(2))) == "the value of 'k' is a bool, but neither 0 nor 1");
  BOOST_TEST(reason(with_metadata("", u32_value(1))) == "the key of a metadata value is empty");
  BOOST_TEST(reason(with_metadata(std::string(70000, 'k'), u32_value(1))) ==
             "the key of a metadata value has 70000 bytes, at most 65535 are legal");
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += raw<std::uint32_t>(9) + raw<std::uint64_t>(1);
  BOOST_TEST(reason(with_metadata("k", raw<std::uint32_t>(9) + deep)) ==
             "the value of 'k' nests arrays too deeply");
  GgufImage twice = with_metadata("k", u32_value(1));
  twice.metadata.push_back(twice.metadata[0]);
  BOOST_TEST(reason(twice) == "the metadata key 'k' occurs twice");
  for (const std::uint32_t alignment : {0U, 1U, 12U})
    BOOST_TEST(reason(with_metadata("general.alignment", u32_value(alignment))) ==
               "general.alignment is " + std::to_string(alignment) + ", expected a multiple of 8");
}

BOOST_AUTO_TEST_CASE(lying_tensors_are_refused) {
  constexpr std::uint64_t huge = 1ULL << 62;
  BOOST_TEST(
      reason(with_tensor({"t", {64}, 12, ""})) ==
      "tensor 't' is of type Q4_K (type 12), supported are F32, F16, BF16, F64, Q8_0, Q4_0, Q4_1, TQ1_0 and "
      "TQ2_0");
  BOOST_TEST(reason(with_tensor({"t", {64}, 99, ""})).find("unknown (type 99)") != std::string::npos);
  BOOST_TEST(reason(with_tensor({"t", {1, 1, 1, 1, 1}, 0, "1234"})) ==
             "tensor 't' has 5 dimensions, but at most 4 are allowed");
  BOOST_TEST(reason(with_tensor({"t", {huge, 8}, 0, ""})) == "tensor 't' is too large to address");
  BOOST_TEST(reason(with_tensor({"t", {}, 8, std::string(34, 'x')})) == "tensor 't' is too large to address");
  BOOST_TEST(reason(with_tensor({"t", {33}, 8, std::string(68, 'x')})) ==
             "tensor 't' of type Q8_0 has rows of 33 elements, which is not a whole number of blocks of 32");
  BOOST_TEST(reason(with_tensor({"t", {2}, 0, "1234"})) ==
             "the data of tensor 't' begin at byte 0 and take 8 bytes, but 4 are there; is the file "
             "truncated?");
  BOOST_TEST(
      reason(with_tensor({"t", {1}, 0, "1234", huge})) ==
      "the data of tensor 't' begin at byte 4611686018427387904 and take 4 bytes, but 4 are there; is the "
      "file truncated?");
  BOOST_TEST(reason(with_tensor({"t", {1}, 0, "12345678", 4})) ==
             "the data of tensor 't' begin at byte 4, which is not a multiple of the alignment 32");
  BOOST_TEST(reason(with_tensor({std::string(65, 't'), {1}, 0, "1234"})) ==
             "the name of a tensor has 65 bytes, at most 64 are legal");
  GgufImage two = with_tensor({"t", {16}, 0, floats(16)});
  two.tensors.push_back({"s", {1}, 0, "1234", 32});
  BOOST_TEST(reason(two) == "the data of tensors 't' and 's' overlap");
  two.tensors[1] = {"t", {1}, 0, "1234"};
  BOOST_TEST(reason(two) == "the tensor 't' occurs twice");
}

BOOST_AUTO_TEST_CASE(a_file_cut_off_anywhere_is_refused) {
  const std::string whole = small_gguf_model().bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    BOOST_REQUIRE_MESSAGE(refusal(cut) != "no error", "cut to " << size << " bytes of " << whole.size());
  }
  BOOST_TEST(refusal(whole) == "no error");
}

BOOST_AUTO_TEST_SUITE_END()
