// SPDX-License-Identifier: MIT
// Tokenised once: what the cache finds, what it does not trust, and who may share it.
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstring>

#include "data_case.hpp"
#include "io/content_hash.hpp"
#include "text/tokenizer_files.hpp"

namespace kformer::Testing {
namespace {

/// A text, a conversation and a cache.
struct CacheCase {
  ScratchDirectory folder, cache;
  std::filesystem::path text = folder / "a.txt", chat = folder / "a.jsonl";

  CacheCase() {
    put_contents(text, "It was a dark and stormy night\xFF");
    put_contents(chat, R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Yo"}]})");
  }

  DataOptions options(DataFormat format = DataFormat::text) const {
    auto options = options_of(format, {format == DataFormat::chat ? chat : text}, Packing::pad, 64);
    options.chat = ChatTemplate{};
    options.cache = cache.path();
    return options;
  }

  std::vector<std::filesystem::path> cached() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(cache.path())) files.push_back(entry.path());
    return files;
  }
};

bool is_cached(const DataOptions& options, const Tokenizer& tokenizer) {
  const auto data = TokenDataset::open(options, tokenizer);
  auto without = options;
  without.cache = "";
  const auto expected = TokenDataset::open(without, tokenizer);
  BOOST_TEST(data.fingerprint() == expected.fingerprint());
  BOOST_TEST(data.size() == expected.size());
  for (std::int64_t i = 0; i < expected.size(); ++i) {
    BOOST_TEST(sequence_of(data, i).ids == sequence_of(expected, i).ids);
    BOOST_TEST(sequence_of(data, i).targets == sequence_of(expected, i).targets);
  }
  BOOST_TEST(data.report().malformed == expected.report().malformed);
  BOOST_TEST(expected.report().cached_files == 0);
  return data.report().cached_files == 1;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(token_cache)

BOOST_AUTO_TEST_CASE(a_file_is_tokenised_once) {
  const CacheCase c;
  for (const DataFormat format : {DataFormat::text, DataFormat::chat}) {
    BOOST_TEST(!is_cached(c.options(format), *bytes()));
    BOOST_TEST(is_cached(c.options(format), *bytes()));
  }
  BOOST_TEST(c.cached().size() == 2u);
  // Packing is not cached, and the name of the file does not matter.
  auto options = c.options();
  options.packing = Packing::stream;
  options.seq_len = 5;
  std::filesystem::rename(c.text, c.folder / "b.txt");
  options.files = {c.folder / "b.txt"};
  BOOST_TEST(is_cached(options, *bytes()));
}

BOOST_AUTO_TEST_CASE(whatever_changes_the_tokens_changes_the_key) {
  const CacheCase c;
  const auto other = open_json(byte_level().text()), another = open_json(byte_level({"ab"}).text());
  for (const auto* tokenizer : {&other, &another}) {
    BOOST_TEST(!is_cached(c.options(), **tokenizer));
    BOOST_TEST(!is_cached(c.options(DataFormat::chat), **tokenizer));
  }
  auto options = c.options(DataFormat::chat);
  options.chat->style = ChatStyle::zephyr;
  BOOST_TEST(!is_cached(options, *other));
  options.chat->eos = "</end>";
  BOOST_TEST(!is_cached(options, *other));
  options.chat->default_system = "Be brief.";
  BOOST_TEST(!is_cached(options, *other));
  options.add_bos = true;
  options.bos = 3;
  BOOST_TEST(!is_cached(options, *other));
  auto begun = c.options();
  begun.bos = 3;
  BOOST_TEST(!is_cached(begun, *other));
  put_contents(c.text, "It was a dark and stormy nighu\xFF");
  BOOST_TEST(!is_cached(c.options(), *other));
  BOOST_TEST(c.cached().size() == 10u);
}

BOOST_AUTO_TEST_CASE(a_damaged_file_is_made_anew) {
  const CacheCase c;
  BOOST_TEST(!is_cached(c.options(DataFormat::chat), *bytes()));
  const auto path = c.cached().at(0);
  const std::string good = contents_of(path);
  std::vector<std::string> damaged{"", good + "x", std::string(good.size(), '\0'), std::string(1000, '\xFF')};
  for (const std::size_t size : {1, 71, 72, 100}) damaged.push_back(good.substr(0, size));
  damaged.push_back(good.substr(0, good.size() - 1));
  for (std::size_t at = 0; at < good.size(); at += at < 80 ? 1 : 7) {
    damaged.push_back(good);
    damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ 0x10);
  }
  for (const std::string& contents : damaged) {
    put_contents(path, contents);
    BOOST_TEST(!is_cached(c.options(DataFormat::chat), *bytes()));
    BOOST_REQUIRE(contents_of(path) == good);
  }
  BOOST_TEST(is_cached(c.options(DataFormat::chat), *bytes()));
}

// Anyone can compute a checksum.
BOOST_AUTO_TEST_CASE(documents_that_are_none_are_made_anew) {
  const CacheCase c;
  const std::string line = contents_of(c.chat);
  put_contents(c.chat, line + "\n" + line);
  const auto options = c.options(DataFormat::chat);
  BOOST_TEST(!is_cached(options, *bytes()));
  const auto path = c.cached().at(0);
  const std::string good = contents_of(path);
  constexpr std::size_t content_at = 24, hashed_from = 40, marks_at = 64, offsets_at = 72;
  const auto with_checksum = [&](std::string file) {
    const auto content = Impl::hash_of(std::string_view(file).substr(hashed_from));
    return file.replace(content_at, sizeof content, reinterpret_cast<const char*>(&content), sizeof content);
  };
  const auto with = [&](std::size_t at, std::int64_t number) {
    return std::string(good).replace(at, sizeof number, reinterpret_cast<const char*>(&number), sizeof number);
  };
  BOOST_REQUIRE(with_checksum(good) == good);
  std::int64_t marks = 0;
  std::memcpy(&marks, good.data() + marks_at, sizeof marks);
  const std::string first = with(offsets_at, 1), second = with(offsets_at + 8, marks + 1),
                    without = with(marks_at, marks - 1).substr(0, good.size() - 1);
  for (const std::string& wrong : {first, second, without}) {
    put_contents(path, with_checksum(wrong));
    BOOST_TEST(!is_cached(options, *bytes()));
    BOOST_TEST((contents_of(path) == good));
  }
}

// What a tokenizer without a fingerprint makes could be that of any other.
BOOST_AUTO_TEST_CASE(a_tokenizer_without_a_fingerprint_has_no_cache) {
  struct Nameless : Tokenizer {
    std::vector<std::int32_t> encode(std::string_view text) const override {
      return std::vector<std::int32_t>(text.size());
    }
    std::vector<std::int32_t> encode_with_special(std::string_view text) const override { return encode(text); }
    std::vector<std::int32_t> encode_chat(std::span<const ChatPiece>) const override { return {}; }
    std::string token_bytes(std::int32_t, bool) const override { return "a"; }
    std::int64_t vocab_size() const override { return 1; }
    std::string piece(std::int32_t) const override { return "a"; }
    std::optional<std::int32_t> id_of(std::string_view) const override { return {}; }
  };
  const CacheCase c;
  for (int again = 0; again < 2; ++again) BOOST_TEST(!is_cached(c.options(), Nameless()));
  BOOST_TEST(c.cached().empty());
}

BOOST_AUTO_TEST_CASE(what_cannot_take_its_place_in_the_cache_is_removed) {
  const CacheCase c;
  BOOST_TEST(!is_cached(c.options(), *bytes()));
  const auto path = c.cached().at(0);
  std::filesystem::remove(path);
  std::filesystem::create_directories(path / "in the way");
  BOOST_TEST(!is_cached(c.options(), *bytes()));
  BOOST_TEST(c.cached().size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_folder_that_cannot_be_written_is_no_obstacle) {
  const CacheCase c;
  put_contents(c.folder / "file", "");
  auto options = c.options();
  options.cache = c.folder / "file/cache";
  const auto data = TokenDataset::open(options, *bytes());
  BOOST_TEST(data.report().notes.size() == 2u);
  BOOST_TEST(
      data.report().notes.at(0).starts_with("the tokens of '" + c.text.string() + "' are not in the cache: "));
  BOOST_TEST(!is_cached(options, *bytes()));
}

BOOST_AUTO_TEST_CASE(processes_share_a_cache) {
  const CacheCase c;
  for (int round = 0; round < 5; ++round) {
    put_contents(c.text, "round " + std::to_string(round) + std::string(200000, 'x'));
    const std::string expected = TokenDataset::open(
                                     [&] {
                                       auto options = c.options();
                                       options.cache = "";
                                       return options;
                                     }(),
                                     *bytes())
                                     .fingerprint();
    std::vector<pid_t> children;
    for (int child = 0; child < 4; ++child) {
      children.push_back(fork());
      if (children.back() == 0)
        _exit(TokenDataset::open(c.options(), *bytes()).fingerprint() == expected ? 0 : 1);
    }
    for (const pid_t child : children) {
      int status = 1;
      waitpid(child, &status, 0);
      BOOST_TEST(status == 0);
    }
    BOOST_TEST(is_cached(c.options(), *bytes()));
  }
  BOOST_TEST(c.cached().size() == 5u);  // and no files on their way
}

BOOST_AUTO_TEST_CASE(the_default_folder_is_that_of_the_desktop_standard) {
  const auto with = [](const char* cache, const char* home) {
    const std::string old_home = std::getenv("HOME") ? std::getenv("HOME") : "";
    cache ? setenv("XDG_CACHE_HOME", cache, 1) : unsetenv("XDG_CACHE_HOME");
    home ? setenv("HOME", home, 1) : unsetenv("HOME");
    const auto folder = default_cache_folder();
    setenv("HOME", old_home.c_str(), 1);
    unsetenv("XDG_CACHE_HOME");
    return folder.string();
  };
  BOOST_TEST(with("/tmp/c", "/home/me") == "/tmp/c/kformer");
  BOOST_TEST(with(nullptr, "/home/me") == "/home/me/.cache/kformer");
  BOOST_TEST(with("", "/home/me") == "/home/me/.cache/kformer");
  BOOST_TEST(with(nullptr, nullptr) == "");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
