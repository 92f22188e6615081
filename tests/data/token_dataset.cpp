// SPDX-License-Identifier: MIT
// Text as sequences: the arithmetic of the three packings, on the tokenizer of bytes.
#include "kformer/data/token_dataset.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <random>
#include <thread>

#include "data_case.hpp"
#include "error_text.hpp"
#include "text/tokenizer_files.hpp"

namespace kformer::Testing {
namespace {

/// Files with these texts.
std::vector<std::filesystem::path> write_texts(const ScratchDirectory& folder,
                                               const std::vector<std::string>& texts) {
  std::vector<std::filesystem::path> files;
  for (const std::string& text : texts) {
    files.push_back(folder / ("text" + std::to_string(files.size()) + ".txt"));
    put_contents(files.back(), text);
  }
  return files;
}

/// The documents' tokens, one after another.
Ids tokens_of(const std::vector<std::string>& texts) {
  Ids all;
  for (const std::string& text : texts) {
    all.push_back(bos);
    for (const char c : text) all.push_back(static_cast<unsigned char>(c));
  }
  return all;
}

std::vector<std::string> random_texts(std::mt19937& random, std::size_t count, std::size_t longest) {
  std::vector<std::string> texts(count);
  for (std::string& text : texts)
    for (auto left = random() % (longest + 1); left > 0; --left) text += static_cast<char>('a' + random() % 26);
  return texts;
}

/// Every token of every document once as input, and every token but the first of each once as target.
void check_documents(const TokenDataset& data, const std::vector<std::string>& texts, std::int64_t seq_len) {
  std::vector<Ids> pieces, expected;
  std::int64_t targets = 0;
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const TokenSequence sequence = sequence_of(data, i);
    BOOST_REQUIRE(std::ssize(sequence.ids) == seq_len);
    BOOST_REQUIRE(std::ssize(sequence.targets) == seq_len);
    BOOST_REQUIRE(sequence.starts.at(0) == 0);
    BOOST_REQUIRE(std::ranges::is_sorted(sequence.starts));
    for (std::size_t s = 0; s < sequence.starts.size(); ++s) {
      const auto begin = static_cast<std::size_t>(sequence.starts[s]);
      const auto end = s + 1 < sequence.starts.size() ? static_cast<std::size_t>(sequence.starts[s + 1])
                                                      : sequence.ids.size();
      // A piece as its tokens and the target of the last of them.
      Ids piece;
      for (std::size_t k = begin; k < end && sequence.ids[k] != 0; ++k) {
        piece.push_back(sequence.ids[k]);
        const bool within = k + 1 < end && sequence.ids[k + 1] != 0;
        if (within) BOOST_REQUIRE(sequence.targets[k] == sequence.ids[k + 1]);
        targets += sequence.targets[k] >= 0 ? 1 : 0;
      }
      piece.push_back(sequence.targets[begin + piece.size() - 1]);
      for (std::size_t k = begin + piece.size() - 1; k < end; ++k) BOOST_REQUIRE(sequence.ids[k] == 0);
      for (std::size_t k = begin + piece.size() - 1; k < end; ++k) BOOST_REQUIRE(sequence.targets[k] == -100);
      pieces.push_back(piece);
    }
  }
  std::int64_t expected_targets = 0;
  for (const std::string& text : texts) {
    const Ids document = tokens_of({text});
    expected_targets += std::ssize(document) - 1;
    const auto length = static_cast<std::size_t>(seq_len);
    for (std::size_t begin = 0; begin < document.size(); begin += length) {
      const std::size_t end = std::min(begin + length, document.size());
      expected.emplace_back(document.begin() + static_cast<std::ptrdiff_t>(begin),
                            document.begin() + static_cast<std::ptrdiff_t>(end));
      expected.back().push_back(end < document.size() ? document[end] : -100);
    }
  }
  std::ranges::sort(pieces);
  std::ranges::sort(expected);
  BOOST_TEST((pieces == expected));
  BOOST_TEST(targets == expected_targets);
  BOOST_TEST(data.report().target_tokens == expected_targets);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(token_dataset)

BOOST_AUTO_TEST_CASE(stream_cuts_wherever_a_sequence_is_full) {
  const ScratchDirectory folder;
  // 4 + 1 + 6 tokens: two sequences of 4 and the target of the last, two tokens dropped.
  const auto files = write_texts(folder, {"abc", "", "defgh"});
  const auto data = TokenDataset::open(options_of(DataFormat::text, files, Packing::stream, 4), *bytes());
  BOOST_TEST(data.size() == 2);
  const TokenSequence first = sequence_of(data, 0), second = sequence_of(data, 1);
  BOOST_TEST(first.ids == (Ids{bos, 'a', 'b', 'c'}));
  BOOST_TEST(first.targets == (Ids{'a', 'b', 'c', bos}));
  BOOST_TEST(first.starts == Ids{0});
  BOOST_TEST(second.ids == (Ids{bos, bos, 'd', 'e'}));
  BOOST_TEST(second.targets == (Ids{bos, 'd', 'e', 'f'}));
  const DataReport& report = data.report();
  BOOST_TEST(report.documents == 3);
  BOOST_TEST(report.tokens == 11);
  BOOST_TEST(report.sequences == 2);
  BOOST_TEST(report.target_tokens == 8);
  BOOST_TEST(report.dropped_tokens == 2);
  BOOST_TEST(report.padding_tokens == 0);
  BOOST_TEST(report.fill == 1.0);
  BOOST_TEST(report.longest_document == 6);
  BOOST_TEST(report.lengths == (std::vector<std::int64_t>{0, 1, 0, 2}));
  BOOST_TEST(data.tokens_in(1) == 4);
  BOOST_CHECK_THROW(sequence_of(data, 2), Error);
  BOOST_CHECK_THROW(sequence_of(data, -1), Error);
}

BOOST_AUTO_TEST_CASE(stream_of_random_texts) {
  std::mt19937 random(5);
  for (int round = 0; round < 30; ++round) {
    const ScratchDirectory folder;
    const auto texts = random_texts(random, 1 + random() % 6, 40);
    const Ids all = tokens_of(texts);
    const std::int64_t seq_len = 1 + random() % 9, count = (std::ssize(all) - 1) / seq_len;
    if (count == 0) continue;
    const auto data = TokenDataset::open(
        options_of(DataFormat::text, write_texts(folder, texts), Packing::stream, seq_len), *bytes());
    BOOST_REQUIRE(data.size() == count);
    for (std::int64_t i = 0; i < count; ++i) {
      const TokenSequence sequence = sequence_of(data, i);
      const auto begin = all.begin() + i * seq_len;
      BOOST_TEST((sequence.ids == Ids(begin, begin + seq_len)));
      BOOST_TEST((sequence.targets == Ids(begin + 1, begin + seq_len + 1)));
    }
    BOOST_TEST(data.report().dropped_tokens == std::ssize(all) - 1 - count * seq_len);
  }
}

BOOST_AUTO_TEST_CASE(best_fit_by_hand) {
  const ScratchDirectory folder;
  // Of 6, 3, 1 and 2 tokens; the first is cut after 5, and what is left shares a sequence.
  const auto files = write_texts(folder, {"abcde", "fg", "", "h"});
  const auto data = TokenDataset::open(options_of(DataFormat::text, files, Packing::best_fit, 5), *bytes());
  BOOST_TEST(data.size() == 3);
  const TokenSequence first = sequence_of(data, 0), second = sequence_of(data, 1), third = sequence_of(data, 2);
  BOOST_TEST(first.ids == (Ids{bos, 'a', 'b', 'c', 'd'}));
  BOOST_TEST(first.targets == (Ids{'a', 'b', 'c', 'd', 'e'}));
  BOOST_TEST(first.starts == Ids{0});
  BOOST_TEST(second.ids == (Ids{'e', bos, 0, 0, 0}));
  BOOST_TEST(second.targets == (Ids{-100, -100, -100, -100, -100}));
  BOOST_TEST(second.starts == (Ids{0, 1}));
  BOOST_TEST(third.ids == (Ids{bos, 'f', 'g', bos, 'h'}));
  BOOST_TEST(third.targets == (Ids{'f', 'g', -100, 'h', -100}));
  BOOST_TEST(third.starts == (Ids{0, 3}));
  BOOST_TEST(data.tokens_in(0) == 5);
  BOOST_TEST(data.tokens_in(1) == 2);
  BOOST_TEST(error_text([&] { data.tokens_in(3); }) == "kformer::TokenDataset::tokens_in: sequence 3 of 3");
  BOOST_TEST(data.report().padding_tokens == 3);
  BOOST_TEST(data.report().fill == 0.8);
  BOOST_TEST(data.report().target_tokens == 8);
}

BOOST_AUTO_TEST_CASE(no_token_is_lost_or_seen_twice) {
  std::mt19937 random(6);
  for (int round = 0; round < 20; ++round) {
    const ScratchDirectory folder;
    auto texts = random_texts(random, 1 + random() % 20, 30);
    texts.push_back("ab");
    const std::int64_t seq_len = 1 + random() % 12;
    const auto files = write_texts(folder, texts);
    for (const Packing packing : {Packing::best_fit, Packing::pad}) {
      const auto data = TokenDataset::open(options_of(DataFormat::text, files, packing, seq_len), *bytes());
      check_documents(data, texts, seq_len);
      if (packing == Packing::pad)
        for (std::int64_t i = 0; i < data.size(); ++i) BOOST_TEST(sequence_of(data, i).starts == Ids{0});
    }
  }
}

BOOST_AUTO_TEST_CASE(text_is_taken_as_it_is) {
  const ScratchDirectory folder;
  const auto files = write_texts(folder, {"\xEF\xBB\xBF"
                                          "a\r\n\xFF<s>\xE2\x82"});
  const auto data = TokenDataset::open(options_of(DataFormat::text, files, Packing::pad, 12), *bytes());
  BOOST_TEST(sequence_of(data, 0).ids == (Ids{bos, 'a', '\r', '\n', 255, '<', 's', '>', 0xE2, 0x82, 0, 0}));
  BOOST_TEST(data.report().malformed == 2);
  BOOST_TEST(data.report().notes ==
                 std::vector<std::string>{"'" + files[0].string() + "' has 2 invalid UTF-8 sequences"},
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_report_is_of_all_files) {
  const ScratchDirectory folder;
  const auto files = write_texts(folder, {"a\xFF", "bcdefg\xFF\xFF", "h"});
  const auto data = TokenDataset::open(options_of(DataFormat::text, files, Packing::pad, 12), *bytes());
  BOOST_TEST(data.report().malformed == 3);
  BOOST_TEST(data.report().longest_document == 9);
}

// A folder may have a tokenizer.json without the file that names its beginning-of-text token.
BOOST_AUTO_TEST_CASE(the_model_knows_the_beginning_of_text_that_the_tokenizer_does_not) {
  const ScratchDirectory folder;
  auto options = options_of(DataFormat::text, write_texts(folder, {"ab", "cd"}), Packing::stream, 2);
  const auto tokenizer = open_json(byte_level().text());
  const std::int64_t tokens = TokenDataset::open(options, *tokenizer).report().tokens;
  options.bos = 5;
  const auto data = TokenDataset::open(options, *tokenizer);
  BOOST_TEST(data.report().tokens == tokens + 2);
  BOOST_TEST(sequence_of(data, 0).ids.front() == 5);
  // Its own one counts.
  BOOST_TEST(sequence_of(TokenDataset::open(options, *bytes()), 0).ids.front() == bos);
}

BOOST_AUTO_TEST_CASE(threads_share_a_data_set) {
  const ScratchDirectory folder;
  std::mt19937 random(8);
  const auto files = write_texts(folder, random_texts(random, 9, 3000));
  const auto data = TokenDataset::open(options_of(DataFormat::text, files, Packing::best_fit, 64), *bytes());
  std::vector<TokenSequence> expected;
  for (std::int64_t i = 0; i < data.size(); ++i) expected.push_back(sequence_of(data, i));
  std::vector<int> faults(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < faults.size(); ++t)
    threads.emplace_back([&, t] {
      for (std::int64_t i = 0; i < data.size(); ++i) {
        const TokenSequence sequence = sequence_of(data, i);
        faults[t] += sequence.ids != expected[static_cast<std::size_t>(i)].ids ||
                     sequence.starts != expected[static_cast<std::size_t>(i)].starts;
      }
    });
  for (std::thread& thread : threads) thread.join();
  BOOST_TEST(faults == std::vector<int>(4), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(all_tokens_of_samples_may_be_targets) {
  auto options = options_of(DataFormat::synthetic, {}, Packing::pad, 24);
  options.synthetic.samples = 5;
  const auto answers = TokenDataset::open(options);
  options.answers_only = false;
  const auto all = TokenDataset::open(options);
  BOOST_TEST(all.report().target_tokens == all.report().tokens - 5);
  BOOST_TEST(answers.report().target_tokens < all.report().target_tokens);
  BOOST_TEST(answers.fingerprint() != all.fingerprint());
  const TokenSequence some = sequence_of(answers, 0), every = sequence_of(all, 0);
  BOOST_TEST(some.ids == every.ids, boost::test_tools::per_element());
  const auto tokens =
      static_cast<std::size_t>(std::ranges::find(every.targets, -100) - every.targets.begin()) + 1;
  BOOST_TEST_REQUIRE(tokens > 4u);
  for (std::size_t i = 0; i + 1 < tokens; ++i) {
    BOOST_TEST(every.targets[i] == every.ids[i + 1]);
    BOOST_TEST((some.targets[i] == -100 || some.targets[i] == every.targets[i]));
  }
  BOOST_TEST(some.targets[0] == -100);
}

BOOST_AUTO_TEST_CASE(fingerprints_tell_data_sets_apart) {
  const ScratchDirectory folder;
  const auto files = write_texts(folder, {"some text", "another", "some texT"});
  const auto print = [&](std::vector<std::filesystem::path> some, Packing packing, std::int64_t seq_len) {
    return TokenDataset::open(options_of(DataFormat::text, some, packing, seq_len), *bytes()).fingerprint();
  };
  const std::string one = print({files[0], files[1]}, Packing::stream, 4);
  BOOST_TEST(one == print({files[0], files[1]}, Packing::stream, 4));
  BOOST_TEST(one != print({files[1], files[0]}, Packing::stream, 4));
  BOOST_TEST(one != print({files[2], files[1]}, Packing::stream, 4));
  BOOST_TEST(one != print({files[0], files[1]}, Packing::pad, 4));
  BOOST_TEST(one != print({files[0], files[1]}, Packing::stream, 5));
}

BOOST_AUTO_TEST_CASE(data_that_is_none) {
  const ScratchDirectory folder;
  const auto files = write_texts(folder, {"abc", ""});
  const auto open = [&](std::vector<std::filesystem::path> some, Packing packing, std::int64_t seq_len) {
    return file_error(
        [&] { TokenDataset::open(options_of(DataFormat::text, some, packing, seq_len), *bytes()); });
  };
  BOOST_TEST(open({files[0]}, Packing::stream, 3) == "no error");
  BOOST_TEST(open({files[0]}, Packing::stream, 4) ==
             "'" + files[0].string() + "': there are 4 tokens; a sequence of seq_len = 4 needs 5");
  BOOST_TEST(open({files[0], files[1]}, Packing::stream, 9) ==
             "'" + files[0].string() + "' and 1 more: there are 5 tokens; a sequence of seq_len = 9 needs 10");
  BOOST_TEST(open({files[1]}, Packing::pad, 4) ==
             "'" + files[1].string() +
                 "': no token is a target: nothing follows the first token of a document, "
                 "or no message is an answer");
  const auto nowhere = folder / "nowhere.txt";
  BOOST_TEST(open({files[0], nowhere}, Packing::pad, 4) ==
             "cannot read '" + nowhere.string() + "': No such file or directory");
  BOOST_TEST(open({folder.path()}, Packing::pad, 4) ==
             "cannot read '" + folder.path().string() + "': Is a directory");
}

BOOST_AUTO_TEST_CASE(options_out_of_range) {
  const auto error = [](const DataOptions& options) {
    try {
      TokenDataset::open(options, *bytes());
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  BOOST_TEST(error(options_of(DataFormat::text, {}, Packing::stream, 4)) ==
             "kformer::TokenDataset::open: there are no files of text");
  BOOST_TEST(error(options_of(DataFormat::text, {"a"}, Packing::stream, 0)) ==
             "kformer::TokenDataset::open: seq_len is 0; expected at least 1");
  BOOST_TEST(error(options_of(DataFormat::synthetic, {"a"}, Packing::stream, 4)) ==
             "kformer::TokenDataset::open: synthetic data has no files");
  BOOST_CHECK_THROW(TokenDataset::open(options_of(DataFormat::text, {"a"}, Packing::stream, 4)), NotSupported);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
