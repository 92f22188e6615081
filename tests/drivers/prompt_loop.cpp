// SPDX-License-Identifier: MIT
#include "generate/prompt_loop.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdio>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "app/command_line.hpp"
#include "io/hdf5_reader.hpp"
#include "io/scratch_directory.hpp"

namespace {

using namespace kformer;
using namespace kformer::drivers;
using Testing::contents_of;
using Testing::Hdf5Reader;
using Testing::put_contents;
using Testing::ScratchDirectory;

/// Sends a stream of the C library into a file.
class Redirected {
 public:
  Redirected(std::FILE* stream, const std::filesystem::path& path) : m_stream(stream) {
    std::fflush(stream);
    m_saved = dup(fileno(stream));
    const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(file, fileno(stream));
    close(file);
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;
  ~Redirected() {
    std::fflush(m_stream);
    dup2(m_saved, fileno(m_stream));
    close(m_saved);
  }

 private:
  std::FILE* m_stream;
  int m_saved;
};

/// Bytes are tokens; every prompt goes on with "xyz", of which row r drops the first r bytes.
class Parrot final : public TextGenerator {
 public:
  int generations = 0;
  std::string complaint;  ///< thrown by the next generation
  std::string message;    ///< of the second generation, during which a stop is requested
  bool memory_runs_out = false, allocation_fails = false;
  double bytes = 0;           ///< of all steps after prefill
  std::vector<double> waits;  ///< of the first generations: `core_wait_share`
  CaseStatus status = CaseStatus::unchecked;

  std::vector<std::int32_t> encode(const PromptTable& prompt) const override {
    std::vector<std::int32_t> ids{256};
    for (const char c : prompt_text(prompt)) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }

  Generation generate(const GenerationTask& task) override {
    ++generations;
    if (memory_runs_out) throw OutOfMemory("no memory");
    if (allocation_fails) throw std::bad_alloc();
    if (!complaint.empty()) throw NotSupported(complaint);
    Generation g;
    g.measurement.status = status;
    for (std::int64_t row = 0; row < task.batch; ++row) g.sequences.push_back(sequence(task, row));
    g.prefill_tokens = static_cast<std::int64_t>(task.prompt.size());
    g.prefill_seconds = 0.5;
    g.decode_tokens = g.decode_steps = 2;
    g.decode_bytes_min = bytes;
    g.decode_seconds = 0.25;
    if (const auto number = static_cast<std::size_t>(generations); number <= waits.size())
      g.measurement.core_wait_share = waits[number - 1];
    if (generations == 3) g.measurement.on_device = {1000, 600};
    if (generations == 2 && !message.empty()) {
      g.measurement.message = message;
      ++generations;
    }
    if (task.profile) {
      g.decode_seconds = 100;  // what the fences cost
      g.measurement.regions = {
          {.path = "decode", .parent = -1, .depth = 0, .count = 2, .inclusive = 3, .exclusive = 3}};
    }
    return g;
  }

 private:
  static Sequence sequence(const GenerationTask& task, std::int64_t row) {
    Sequence s{.prompt_tokens = static_cast<std::int64_t>(task.prompt.size())};
    for (const std::int32_t id : task.prompt)
      s.tokens.push_back({.id = id, .bytes = id == 256 ? "" : std::string(1, static_cast<char>(id))});
    for (const char c : std::string("xyz").substr(static_cast<std::size_t>(row))) {
      s.tokens.push_back({.id = c, .bytes = std::string(1, c), .log_probability = -0.5, .time = 0.75});
      if (row == 0 && task.on_text) task.on_text(std::string(1, c));
    }
    s.end = task.stop() ? SequenceEnd::interrupted : SequenceEnd::end_of_text;
    return s;
  }
};

struct Prompts {
  ScratchDirectory directory;
  Parrot parrot;
  int stop_at = std::numeric_limits<int>::max();  // a stop is requested during this generation
  bool together = false;                          // with other ranks
  bool resume = false;
  std::string out, err;
  std::vector<double> sampled;     // bytes of the limits that were measured
  std::vector<double> bandwidths;  // that the first measurements find; 1 after them

  std::filesystem::path file() const { return directory / "run.h5"; }

  int run(const std::string& keys) {
    put_contents(directory / "deck.toml",
                 "schema = 1\nkind = \"generate\"\n[weights]\npath = \"none\"\n" + keys);
    const GenerateDeck deck = load_generate_deck({directory / "deck.toml", {}});
    int code = -1;
    {
      const Redirected to_out(stdout, directory / "out"), to_err(stderr, directory / "err");
      ResultFile results(file(), {.resume = resume});
      GenerateResults tables(results, deck, "cuda");
      code = run_prompts(
          {&deck, &parrot, &tables,
           [this] {
             return parrot.generations < stop_at ? std::nullopt : std::optional<std::string>("signal");
           },
           [this](double bytes) {
             sampled.push_back(bytes);
             const std::size_t number = sampled.size();
             return kformer::measure::CaseLimits{
                 .flop_rate = 1, .bandwidth = number <= bandwidths.size() ? bandwidths[number - 1] : 1};
           },
           together},
          results);
    }
    out = contents_of(directory / "out");
    err = contents_of(directory / "err");
    return code;
  }
};

const std::string two_prompts = "[[prompt]]\ntext = \"a\"\n[[prompt]]\ntext = \"b\"\n";

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

BOOST_FIXTURE_TEST_SUITE(prompt_loop, Prompts)

BOOST_AUTO_TEST_CASE(standard_output_has_the_text_alone) {
  BOOST_TEST(run("[[prompt]]\ntext = \"Once \"\n") == exit_ok);
  BOOST_TEST(out == "Once xyz\n");
  BOOST_TEST(contains(err, "prompt1 [0]: unchecked\n"));
  BOOST_TEST(contains(err, "prefill  6 tokens in 0.5 s, 12 tokens/s"));
  BOOST_TEST(contains(err, "results: " + file().string()));
}

BOOST_AUTO_TEST_CASE(of_a_chat_only_the_answer_is_printed) {
  BOOST_TEST(run("[[prompt]]\nchat = \"Hello\"\n") == exit_ok);
  BOOST_TEST(out == "xyz\n");
}

BOOST_AUTO_TEST_CASE(several_sequences_have_headings) {
  BOOST_TEST(run("[generate]\nbatch = 2\n[[prompt]]\ntext = \"a\"\n") == exit_ok);
  BOOST_TEST(out == "== prompt1 [0] ==\naxyz\n== prompt1 [1] ==\nayz\n");
}

BOOST_AUTO_TEST_CASE(two_prompts_have_their_names) {
  BOOST_TEST(run("[[prompt]]\ntext = \"a\"\nname = \"first\"\n[[prompt]]\ntext = \"\"\n") == exit_ok);
  BOOST_TEST(out == "== first ==\naxyz\n== prompt2 ==\nxyz\n");
}

BOOST_AUTO_TEST_CASE(what_was_generated_is_in_the_file) {
  run("[generate]\nbatch = 2\n[timing]\nwarmup = 1\nrepeats = 2\n[[prompt]]\ntext = \"ab\"\n");
  BOOST_TEST(parrot.generations == 3);
  const Hdf5Reader reader(file());
  BOOST_TEST(reader.numbers("cases/repeat") == (std::vector<double>{0, 1}), boost::test_tools::per_element());
  BOOST_TEST(reader.numbers("cases/new_tokens")[0] == 5);
  BOOST_TEST(reader.numbers("cases/prefill_rate")[0] == 6);
  BOOST_TEST(reader.numbers("cases/decode_rate")[0] == 8);
  BOOST_TEST(reader.numbers("generations/case") == (std::vector<double>{0, 0, 1, 1}),
             boost::test_tools::per_element());
  BOOST_TEST(reader.texts("generations/text") == (std::vector<std::string>{"xyz", "yz", "xyz", "yz"}),
             boost::test_tools::per_element());
  BOOST_TEST(reader.numbers("generations/mean_nll_new")[1] == 0.5);
  BOOST_TEST(reader.numbers("tokens/id").size() == 22u);
  BOOST_TEST(reader.numbers("tokens/generation")[6] == 1);
  BOOST_TEST(reader.numbers("tokens/new")[2] == 0);
  BOOST_TEST(reader.numbers("tokens/new")[3] == 1);
  BOOST_TEST(reader.numbers("tokens/time")[3] == 0.75);
  BOOST_TEST(std::isnan(reader.numbers("tokens/log_probability")[0]));
  BOOST_TEST(reader.numbers("memory/devices/case") == std::vector<double>{1}, boost::test_tools::per_element());
  BOOST_TEST(reader.numbers("memory/devices/used_bytes") == std::vector<double>{1000},
             boost::test_tools::per_element());
  BOOST_TEST(reader.numbers("memory/devices/pool_reserved_bytes") == std::vector<double>{600},
             boost::test_tools::per_element());
  for (const char* group : {"cases", "generations", "tokens", "memory/classes", "memory/devices"})
    for (const std::string& name : reader.names(group))
      BOOST_TEST(reader.has_scales(std::string(group) + "/" + name), group << "/" << name);
}

BOOST_AUTO_TEST_CASE(the_profiled_pass_is_never_counted) {
  BOOST_TEST(run("[profile]\nkernels = true\n[timing]\nrepeats = 2\n[[prompt]]\ntext = \"ab\"\n") == exit_ok);
  BOOST_TEST(parrot.generations == 3);
  BOOST_TEST(out == "abxyz\n");
  const Hdf5Reader reader(file());
  BOOST_TEST(reader.numbers("cases/decode_rate") == (std::vector<double>{8, 8}),
             boost::test_tools::per_element());
  BOOST_TEST(reader.texts("regions/path") == std::vector<std::string>{"decode"},
             boost::test_tools::per_element());
  BOOST_TEST(reader.numbers("regions/case") == std::vector<double>{0}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_text_that_is_as_expected_is_ok) {
  put_contents(directory / "expected", "Once xyz\n");
  BOOST_TEST(run("[[prompt]]\ntext = \"Once \"\nexpect_file = \"expected\"\n"
                 "[[prompt]]\ntext = \"\"\nexpect_ids = [256, 120, 121, 122]\n") == exit_ok);
  BOOST_TEST(contains(err, "prompt1 [0]: ok"));
  BOOST_TEST(contains(err, "prompt2 [0]: ok"));
}

BOOST_AUTO_TEST_CASE(a_text_that_differs_ends_with_exit_code_5) {
  put_contents(directory / "expected", "Once xyw");
  BOOST_TEST(run("[[prompt]]\ntext = \"Once \"\nexpect_file = \"expected\"\n[[prompt]]\ntext = \"\"\n") ==
             exit_check);
  BOOST_TEST(contains(err,
                      "prompt1 [0]: token 9 of 9 (id 122, \"z\") is the first that differs: after 7 bytes of "
                      "text, expected \"w\", got \"z\""));
  const Hdf5Reader reader(file());
  BOOST_TEST(contains(reader.texts("cases/message")[0], "is the first that differs"));
  BOOST_TEST(reader.numbers("cases/status").size() == 2u);
}

BOOST_AUTO_TEST_CASE(a_generation_that_failed_is_no_failed_check) {
  parrot.status = CaseStatus::error;
  BOOST_TEST(run("[[prompt]]\ntext = \"\"\nexpect_ids = [256, 120]\n") == exit_failure);
  BOOST_TEST(contains(err, "prompt1 [0]: error"));
}

BOOST_AUTO_TEST_CASE(every_row_must_be_as_expected) {
  BOOST_TEST(run("[generate]\nbatch = 2\n[[prompt]]\ntext = \"\"\nexpect_ids = [256, 120, 121, 122]\n") ==
             exit_check);
  BOOST_TEST(contains(err, "prompt1 [1]: token 2 of 3"));
}

// Two tokens in two steps: one of the rows had ended.
BOOST_AUTO_TEST_CASE(limits_are_of_the_bytes_of_a_step_however_many_rows_have_ended) {
  parrot.bytes = 60;
  BOOST_TEST(run("[generate]\nbatch = 2\n[[prompt]]\ntext = \"a\"\n") == exit_ok);
  BOOST_TEST_REQUIRE(!sampled.empty());
  BOOST_TEST(sampled.back() == 30);
}

BOOST_AUTO_TEST_CASE(what_disturbed_a_generation_is_in_the_file) {
  parrot.waits = {0.5, 0.1, 0.1, 0.1};
  bandwidths = {1, 0.5, 0.25, 0.25};
  BOOST_TEST(run("[timing]\nrepeats = 2\n" + two_prompts) == exit_ok);
  const Hdf5Reader reader(file());
  BOOST_TEST(reader.numbers("cases/core_wait_share") == parrot.waits, boost::test_tools::per_element());
  const std::vector<double> changes = reader.numbers("cases/limits_change");
  BOOST_TEST_REQUIRE(changes.size() == 4u);
  // The first of a prompt moves other bytes than the one before.
  BOOST_TEST(std::isnan(changes[0]));
  BOOST_TEST(changes[1] == 0.5);
  BOOST_TEST(std::isnan(changes[2]));
  BOOST_TEST(changes[3] == 0);
  BOOST_TEST(reader.numbers("cases/noisy") == (std::vector<double>{1, 1, 0, 0}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(limits_that_change_beside_other_ranks_are_no_noise) {
  together = true;
  bandwidths = {1, 0.5};
  BOOST_TEST(run("[timing]\nrepeats = 2\n[[prompt]]\ntext = \"a\"\n") == exit_ok);
  BOOST_TEST(std::isnan(Hdf5Reader(file()).numbers("cases/limits_change")[1]));
}

BOOST_AUTO_TEST_CASE(a_prompt_that_fails_does_not_end_the_run) {
  parrot.complaint = "there is no chat template";
  BOOST_TEST(run("[[prompt]]\ntext = \"a\"\n[[prompt]]\ntext = \"b\"\n") == exit_failure);
  BOOST_TEST(parrot.generations == 2);
  BOOST_TEST(out == "== prompt1 ==\na\n== prompt2 ==\nb\n");
  BOOST_TEST(Hdf5Reader(file()).texts("cases/message")[1] == "there is no chat template");
}

BOOST_AUTO_TEST_CASE(memory_that_runs_out_is_recorded_or_ends_the_run) {
  parrot.memory_runs_out = true;
  BOOST_TEST(run("[[prompt]]\ntext = \"a\"\n[[prompt]]\ntext = \"b\"\n") == exit_nothing);
  BOOST_TEST(contains(err, "no case ran"));
  BOOST_TEST(parrot.generations == 2);
  std::filesystem::remove(file());
  BOOST_TEST(run("[run]\non_oom = \"abort\"\n[[prompt]]\ntext = \"a\"\n[[prompt]]\ntext = \"b\"\n") ==
             exit_out_of_memory);
  BOOST_TEST(parrot.generations == 3);
  BOOST_TEST(Hdf5Reader(file().string() + ".part").texts("cases/message")[0] == "no memory");
}

// They would wait for what this one does not send.
BOOST_AUTO_TEST_CASE(memory_that_runs_out_on_one_of_several_ranks_ends_the_run) {
  together = parrot.memory_runs_out = true;
  BOOST_CHECK_THROW(run("[[prompt]]\ntext = \"a\"\n[[prompt]]\ntext = \"b\"\n"), OutOfMemory);
  BOOST_TEST(parrot.generations == 1);
}

BOOST_AUTO_TEST_CASE(an_allocation_that_fails_is_memory_that_runs_out) {
  parrot.allocation_fails = true;
  BOOST_TEST(run("[[prompt]]\ntext = \"a\"\n") == exit_nothing);
  BOOST_TEST(contains(Hdf5Reader(file()).texts("cases/message")[0], "memory ran out (std::bad_alloc); "));
  BOOST_TEST(out == "a\n");
  std::filesystem::remove(file());
  BOOST_TEST(run("[run]\non_oom = \"abort\"\n[[prompt]]\ntext = \"a\"\n") == exit_out_of_memory);
}

BOOST_AUTO_TEST_CASE(a_stopped_run_keeps_what_it_has) {
  stop_at = 0;
  BOOST_TEST(run("[[prompt]]\ntext = \"a\"\n") == exit_stopped);
  BOOST_TEST(parrot.generations == 0);
  BOOST_TEST(contains(err, "stopped (signal)"));
}

BOOST_AUTO_TEST_CASE(a_stopped_run_is_resumed) {
  const std::string keys = "[generate]\nbatch = 2\n[timing]\nrepeats = 2\n" + two_prompts;
  BOOST_TEST(run(keys) == exit_ok);
  const std::string whole_out = out;
  const std::filesystem::path whole = directory / "whole.h5", part = file().string() + ".part";
  std::filesystem::rename(file(), whole);

  parrot.generations = 0;
  stop_at = 3;
  BOOST_TEST(run(keys) == exit_stopped);
  BOOST_TEST(contains(err, "stopped (signal); the finished generations are in " + part.string() +
                               ", and --resume goes on with them"));
  BOOST_TEST(Hdf5Reader(part).numbers("cases/repeat") == (std::vector<double>{0, 1, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(Hdf5Reader(part).has("memory/devices"));

  parrot.generations = 0;
  stop_at = std::numeric_limits<int>::max();
  resume = true;
  BOOST_TEST(run(keys) == exit_ok);
  BOOST_TEST(parrot.generations == 2);  // the one that was interrupted, and the last
  BOOST_TEST(out == whole_out);
  BOOST_TEST(contains(err, "resumed: 2 generations are from " + part.string()));
  const Hdf5Reader expected(whole), found(file());
  for (const char* column : {"cases/repeat", "generations/case", "generations/row", "generations/end",
                             "tokens/generation", "tokens/position", "tokens/id", "memory/classes/peak_bytes"})
    BOOST_TEST(found.numbers(column) == expected.numbers(column), column);
  BOOST_TEST(!found.has("memory/devices"));  // only the third generation of a run has it
}

BOOST_AUTO_TEST_CASE(a_run_that_memory_ended_is_resumed_with_the_same_prompt) {
  const std::string keys = "[run]\non_oom = \"abort\"\n" + two_prompts;
  parrot.memory_runs_out = true;
  BOOST_TEST(run(keys) == exit_out_of_memory);
  parrot.memory_runs_out = false;
  resume = true;
  BOOST_TEST(run(keys) == exit_ok);
  BOOST_TEST(parrot.generations == 3);
  BOOST_TEST(Hdf5Reader(file()).texts("cases/prompt") == (std::vector<std::string>{"prompt1", "prompt2"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_check_that_was_interrupted_is_made_again) {
  const std::string keys = "[timing]\nrepeats = 3\n[[prompt]]\ntext = \"a\"\n";
  parrot.message = "not checked: the check was interrupted";
  stop_at = 3;
  BOOST_TEST(run(keys) == exit_stopped);
  BOOST_TEST(Hdf5Reader(file().string() + ".part").numbers("cases/repeat").size() == 2);

  parrot.message.clear();
  parrot.generations = 0;
  stop_at = std::numeric_limits<int>::max();
  resume = true;
  BOOST_TEST(run(keys) == exit_ok);
  BOOST_TEST(parrot.generations == 2);
  BOOST_TEST(Hdf5Reader(file()).texts("cases/message") == (std::vector<std::string>(3)),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_failure_before_the_interruption_is_not_forgotten) {
  parrot.complaint = "there is no chat template";
  stop_at = 1;
  BOOST_TEST(run(two_prompts) == exit_stopped);
  parrot.complaint.clear();
  stop_at = std::numeric_limits<int>::max();
  resume = true;
  BOOST_TEST(run(two_prompts) == exit_failure);
  BOOST_TEST(parrot.generations == 2);
  BOOST_TEST(out == "== prompt2 ==\nbxyz\n");
}

BOOST_AUTO_TEST_CASE(generations_of_another_deck_are_not_resumed) {
  stop_at = 3;
  BOOST_TEST(run("[timing]\nrepeats = 2\n" + two_prompts) == exit_stopped);
  stop_at = std::numeric_limits<int>::max();
  resume = true;
  for (const char* other : {"[[prompt]]\ntext = \"a\"\nname = \"other\"\n", "[[prompt]]\ntext = \"a\"\n"})
    BOOST_CHECK_EXCEPTION(run(other), FileError, [](const FileError& error) {
      return contains(error.what(), "cannot be continued: it has other generations than the deck");
    });
  BOOST_CHECK_EXCEPTION(run("[timing]\nrepeats = 2\n[[prompt]]\ntext = \"A\"\n[[prompt]]\ntext = \"b\"\n"),
                        FileError, [](const FileError& error) {
                          return contains(error.what(),
                                          "cannot be continued: prompt 'prompt1' had another text");
                        });
  BOOST_TEST(parrot.generations == 3);
}

BOOST_AUTO_TEST_SUITE_END()
