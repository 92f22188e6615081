// SPDX-License-Identifier: MIT
#include "generate/prompt_loop.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "app/command_line.hpp"
#include "app/say.hpp"
#include "generate/expectation.hpp"
#include "generate/figures.hpp"
#include "io/utf8.hpp"
#include "sweep/noise.hpp"

namespace kformer::drivers {

namespace {

void print_text(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// The state of the run.
class PromptRun {
 public:
  PromptRun(const PromptLoop& loop, ResultFile& file)
      : m_loop(loop), m_deck(*loop.deck), m_file(file), m_finished(loop.results->finished()) {}

  int run() {
    if (m_finished > 0)
      say(m_loop.log, "resumed: {} {} from {}\n", m_finished,
          m_finished == 1 ? "generation is" : "generations are", m_file.part_path().string());
    for (const PromptTable& prompt : m_deck.prompts) {
      GenerationLabel label{prompt.name, prompt_text(prompt), 0, name_of_adapter(prompt)};
      if (recall(prompt, label)) continue;
      if (!goes_on()) break;
      run_prompt(prompt, label);
    }
    if (m_recalled < m_finished) refuse_file();
    return close();
  }

 private:
  bool goes_on() {
    if (!m_stopped) m_stopped = m_loop.stop();
    return !m_stopped && !m_out_of_memory;
  }

  // Takes what an interrupted run finished of the prompt, and prints the text. Whether that is all.
  bool recall(const PromptTable& prompt, GenerationLabel& label) {
    while (m_recalled < m_finished && label.repeat < m_deck.timing.repeats) {
      const FinishedGeneration g = m_loop.results->generation(m_recalled);
      if (g.prompt != label.prompt || g.repeat != label.repeat) refuse_file();
      if (!g.texts.empty() && g.prompt_text != Impl::to_utf8(label.prompt_text))
        throw FileError(fmt::format("'{}' cannot be continued: prompt '{}' had another text",
                                    m_file.part_path().string(), label.prompt));
      ++m_recalled;
      count(g.status, !g.texts.empty());
      if (g.texts.empty()) return true;
      if (label.repeat == 0) {
        print_beginning(prompt, label, 0);
        print_text(g.texts.front());
        print_rest(prompt, label, g.texts);
      }
      ++label.repeat;
    }
    return label.repeat == m_deck.timing.repeats;
  }

  [[noreturn]] void refuse_file() const {
    throw FileError(fmt::format("'{}' cannot be continued: it has other generations than the deck",
                                m_file.part_path().string()));
  }

  void run_prompt(const PromptTable& prompt, GenerationLabel& label) {
    GenerationTask task{.prompt = {},
                        .batch = m_deck.generate.batch,
                        .adapter = adapter_of(m_deck, prompt),
                        .check = false,
                        .on_text = {},
                        .stop = [this] { return !goes_on(); }};
    try {
      task.prompt = m_loop.generator->encode(prompt);
      for (std::int64_t i = 0; i < m_deck.timing.warmup && goes_on(); ++i) m_loop.generator->generate(task);
      const bool profiles = m_deck.profile.kernels && label.repeat == 0 && goes_on();
      const Measurement profiled = profiles ? profile(task) : Measurement();
      task.check = true;
      for (; label.repeat < m_deck.timing.repeats && goes_on(); ++label.repeat)
        run_counted(prompt, label, task, label.repeat == 0 ? profiled : Measurement());
    } catch (const FileError&) {
      throw;
    } catch (const std::exception& error) {
      const auto memory = out_of_memory_text(error);
      // Other ranks, which have enough, wait for this one; a prompt that cannot be continued is the same for all.
      if (m_loop.together && (memory || dynamic_cast<const CommunicationError*>(&error) != nullptr)) throw;
      if (memory) {
        m_out_of_memory = m_deck.run.on_oom == OnOutOfMemory::abort;
        keep_failure(label, CaseStatus::out_of_memory, *memory);
      } else if (dynamic_cast<const Error*>(&error) != nullptr) {
        m_failed = true;
        keep_failure(label, CaseStatus::error, error.what());
      } else {
        throw;
      }
    }
  }

  std::string name_of_adapter(const PromptTable& prompt) const {
    return m_deck.adapter.path.empty() ? prompt.adapter : m_deck.adapter.path.filename().string();
  }

  // A pass of its own: the profiler's fences make its times meaningless.
  Measurement profile(GenerationTask task) {
    task.profile = true;
    return m_loop.generator->generate(task).measurement;
  }

  void run_counted(const PromptTable& prompt, const GenerationLabel& label, const GenerationTask& quiet,
                   const Measurement& profiled) {
    const bool shown = label.repeat == 0;
    GenerationTask task = quiet;
    if (shown) {
      print_beginning(prompt, label, 0);
      task.on_text = print_text;
    }
    Generation generation;
    try {
      generation = m_loop.generator->generate(task);
    } catch (const std::exception&) {
      if (shown) print_text("\n");
      throw;
    }
    if (shown) {
      std::vector<std::string> texts;
      for (const Sequence& s : generation.sequences) texts.push_back(new_text_of(s));
      print_rest(prompt, label, texts);
    }
    generation.measurement.regions = profiled.regions;
    generation.measurement.profile = profiled.profile;
    sample_limits(generation, label.repeat);
    judge(prompt, generation);
    keep(label, generation);
  }

  // Beside the generation: the sample after it is that before the next one, which moves as many bytes in a
  // step. The first of a prompt has none before it.
  void sample_limits(Generation& generation, std::int64_t repeat) {
    if (generation.decode_steps == 0) return;
    const auto after =
        m_loop.limits(generation.decode_bytes_min / static_cast<double>(generation.decode_steps));
    Measurement& m = generation.measurement;
    m.limits = larger_of(m_limits_before, after);
    // Several ranks are a load for each other.
    if (repeat > 0 && m_limits_before.bandwidth > 0 && !m_loop.together)
      m.limits_change = change_between(m_limits_before, after);
    m_limits_before = after;
  }

  // Row 0 was printed as it came.
  void print_rest(const PromptTable& prompt, const GenerationLabel& label,
                  const std::vector<std::string>& texts) const {
    print_text("\n");
    for (std::size_t row = 1; row < texts.size(); ++row) {
      print_beginning(prompt, label, row);
      print_text(texts[row] + "\n");
    }
  }

  // What stands before the new text of a sequence.
  void print_beginning(const PromptTable& prompt, const GenerationLabel& label, std::size_t row) const {
    if (m_deck.generate.batch > 1)
      print_text(fmt::format("== {} [{}] ==\n", prompt.name, row));
    else if (m_deck.prompts.size() > 1)
      print_text(fmt::format("== {} ==\n", prompt.name));
    if (!prompt.chat) print_text(label.prompt_text);
  }

  // An interrupted sequence is not the requested result, and one that failed has its reason already.
  void judge(const PromptTable& prompt, Generation& generation) const {
    Measurement& m = generation.measurement;
    if (m.status == CaseStatus::error) return;
    const auto wanted = expected_text(prompt);
    for (std::size_t row = 0; row < generation.sequences.size(); ++row) {
      const Sequence& s = generation.sequences[row];
      if (s.end == SequenceEnd::interrupted) return;
      std::optional<std::string> difference;
      if (wanted) difference = difference_from(s.tokens, *wanted);
      if (!difference && !prompt.expect_ids.empty()) difference = difference_from(s.tokens, prompt.expect_ids);
      if (!difference) continue;
      m.status = CaseStatus::failed_check;
      m.message += fmt::format("{}{} [{}]: {}", m.message.empty() ? "" : "; ", prompt.name, row, *difference);
      return;
    }
    if (m.status == CaseStatus::unchecked && (wanted || !prompt.expect_ids.empty())) m.status = CaseStatus::ok;
  }

  void keep_failure(const GenerationLabel& label, CaseStatus status, const std::string& message) {
    Generation nothing;
    nothing.measurement.status = status;
    nothing.measurement.message = message;
    keep(label, nothing);
  }

  void count(CaseStatus status, bool generated) {
    m_failed_check |= status == CaseStatus::failed_check;
    m_failed |= status == CaseStatus::error;
    m_generated |= generated;
  }

  void keep(const GenerationLabel& label, const Generation& generation) {
    count(generation.measurement.status, !generation.sequences.empty());
    m_loop.results->add(label, generation);
    say(m_loop.log, "{}", figures_of(label, generation));
  }

  int close() {
    if (m_loop.finish) m_loop.finish();
    if (m_stopped || m_out_of_memory) {
      m_file.checkpoint();
      say(m_loop.log, "stopped ({}); the finished generations are in {}{}\n",
          m_stopped.value_or("out of memory"), m_file.part_path().string(),
          m_loop.together ? "" : ", and --resume goes on with them");
      return m_out_of_memory ? exit_out_of_memory : exit_stopped;
    }
    m_file.finish();
    say(m_loop.log, "results: {}\n", m_file.path().string());
    if (m_failed_check) return exit_check;
    if (m_failed) return exit_failure;
    if (m_generated) return exit_ok;
    say(m_loop.log, "error: {}\n", no_case_ran);
    return exit_nothing;
  }

  const PromptLoop& m_loop;
  const GenerateDeck& m_deck;
  ResultFile& m_file;
  std::size_t m_finished, m_recalled = 0;  // by the run that this one resumes
  measure::CaseLimits m_limits_before;
  std::optional<std::string> m_stopped;
  bool m_out_of_memory = false;
  bool m_failed_check = false;
  bool m_failed = false;
  bool m_generated = false;
};

}  // namespace

int run_prompts(const PromptLoop& loop, ResultFile& file) { return PromptRun(loop, file).run(); }

}  // namespace kformer::drivers
