// SPDX-License-Identifier: MIT
#include "kformer/data/synthetic.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <set>

#include "data_case.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Testing {
namespace {

std::string letters_of(const SyntheticSample& sample) {
  BOOST_TEST(sample.prompt.ends_with('='));
  return sample.prompt.substr(0, sample.prompt.size() - 1);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(synthetic)

BOOST_AUTO_TEST_CASE(answers_are_right) {
  for (std::int64_t i = 0; i < 300; ++i) {
    SyntheticOptions options{SyntheticTask::copy, 0, 6, 3};
    const auto copied = synthetic_sample(options, i);
    std::string letters = letters_of(copied);
    BOOST_TEST(copied.answer == letters);
    BOOST_TEST((letters.size() >= 1 && letters.size() <= 6));
    options.task = SyntheticTask::reverse;
    const auto reversed = synthetic_sample(options, i);
    BOOST_TEST(letters_of(reversed) == letters);
    BOOST_TEST(reversed.answer == std::string(letters.rbegin(), letters.rend()));
    options.task = SyntheticTask::sort;
    std::ranges::sort(letters);
    BOOST_TEST(synthetic_sample(options, i).answer == letters);
    options.task = SyntheticTask::sum;
    const auto sum = synthetic_sample(options, i);
    const auto plus = sum.prompt.find('+');
    BOOST_TEST(std::stoll(sum.prompt) + std::stoll(sum.prompt.substr(plus + 1)) == std::stoll(sum.answer));
    BOOST_TEST(plus <= 6u);
  }
}

BOOST_AUTO_TEST_CASE(samples_depend_on_seed_and_index_alone) {
  const auto prompt = [](std::uint64_t seed, std::int64_t index) {
    return synthetic_sample({SyntheticTask::copy, 0, 12, seed}, index).prompt;
  };
  // Frozen: data must not change between versions.
  BOOST_TEST(prompt(0, 0) == "wjax=");
  BOOST_TEST(prompt(0, 1) == "yhmmdeyf=");
  BOOST_TEST(synthetic_sample({SyntheticTask::sum, 0, 3, 7}, 5).prompt == "16+43=");
  std::set<std::string> different, lengths;
  for (std::int64_t i = 0; i < 200; ++i) {
    different.insert(prompt(1, i));
    lengths.insert(std::to_string(prompt(1, i).size()));
  }
  BOOST_TEST(different.size() > 170u);  // short ones repeat
  BOOST_TEST(lengths.size() == 12u);
  BOOST_TEST(prompt(1, 5) != prompt(2, 5));
}

BOOST_AUTO_TEST_CASE(lengths_out_of_range) {
  const auto error = [](SyntheticTask task, std::int64_t max_length) {
    try {
      synthetic_sample({task, 1, max_length, 0}, 0);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  BOOST_TEST(error(SyntheticTask::copy, 0) ==
             "kformer::synthetic_sample: max_length is 0; expected at least 1");
  BOOST_TEST(error(SyntheticTask::sum, 19) ==
             "kformer::synthetic_sample: max_length is 19; expected at least 1, and for sums at most 18");
  BOOST_TEST(error(SyntheticTask::sum, 18) == "no error");
  BOOST_TEST(error(SyntheticTask::sort, 19) == "no error");
}

BOOST_AUTO_TEST_CASE(answers_alone_are_learnt) {
  DataOptions options = options_of(DataFormat::synthetic, {}, Packing::pad, 40);
  options.synthetic = {SyntheticTask::reverse, 20, 9, 4};
  const auto data = TokenDataset::open(options);
  BOOST_TEST(data.size() == 20);
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const auto sample = synthetic_sample(options.synthetic, i);
    std::string expected = "<s>" + sample.prompt + "[" + sample.answer + "</s>]";
    expected.append(40 - 2 - sample.prompt.size() - sample.answer.size(), '\0');
    BOOST_TEST(marked(sequence_of(data, i), *bytes()) == expected);
  }
  BOOST_TEST(data.report().documents == 20);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
