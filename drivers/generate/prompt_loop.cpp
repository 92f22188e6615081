// SPDX-License-Identifier: MIT
#include "generate/prompt_loop.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "app/command_line.hpp"
#include "app/say.hpp"
#include "generate/expectation.hpp"
#include "generate/figures.hpp"

namespace kformer::drivers {

namespace {

void print_text(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// The state of the run.
class PromptRun {
 public:
  PromptRun(const PromptLoop& loop, ResultFile& file) : m_loop(loop), m_deck(*loop.deck), m_file(file) {}

  int run() {
    for (const PromptTable& prompt : m_deck.prompts) {
      if (!goes_on()) break;
      run_prompt(prompt);
    }
    return close();
  }

 private:
  bool goes_on() {
    if (!m_stopped) m_stopped = m_loop.stop();
    return !m_stopped && !m_out_of_memory;
  }

  void run_prompt(const PromptTable& prompt) {
    GenerationLabel label{prompt.name, prompt_text(prompt), 0, name_of_adapter(prompt)};
    GenerationTask task{.prompt = {},
                        .batch = m_deck.generate.batch,
                        .adapter = adapter_of(m_deck, prompt),
                        .check = false,
                        .on_text = {},
                        .stop = [this] { return !goes_on(); }};
    try {
      task.prompt = m_loop.generator->encode(prompt);
      for (std::int64_t i = 0; i < m_deck.timing.warmup && goes_on(); ++i) m_loop.generator->generate(task);
      const Measurement profiled = m_deck.profile.kernels && goes_on() ? profile(task) : Measurement();
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
      print_heading(prompt, 0);
      if (!prompt.chat) print_text(label.prompt_text);
      task.on_text = print_text;
    }
    Generation generation;
    try {
      generation = m_loop.generator->generate(task);
    } catch (const std::exception&) {
      if (shown) print_text("\n");
      throw;
    }
    if (shown) print_rest(prompt, label, generation);
    generation.measurement.regions = profiled.regions;
    generation.measurement.profile = profiled.profile;
    sample_limits(generation);
    judge(prompt, generation);
    keep(label, generation);
  }

  // Beside the generation: the sample after it is that before the next one, which moves as many bytes in a step.
  void sample_limits(Generation& generation) {
    if (generation.decode_tokens == 0) return;
    const double steps =
        static_cast<double>(generation.decode_tokens) / static_cast<double>(m_deck.generate.batch);
    const auto after = m_loop.limits(generation.decode_bytes_min / steps);
    generation.measurement.limits = larger_of(m_limits_before, after);
    m_limits_before = after;
  }

  // Row 0 was printed as it came.
  void print_rest(const PromptTable& prompt, const GenerationLabel& label, const Generation& generation) {
    print_text("\n");
    for (std::size_t row = 1; row < generation.sequences.size(); ++row) {
      print_heading(prompt, row);
      if (!prompt.chat) print_text(label.prompt_text);
      print_text(new_text_of(generation.sequences[row]) + "\n");
    }
  }

  void print_heading(const PromptTable& prompt, std::size_t row) const {
    if (m_deck.generate.batch > 1)
      print_text(fmt::format("== {} [{}] ==\n", prompt.name, row));
    else if (m_deck.prompts.size() > 1)
      print_text(fmt::format("== {} ==\n", prompt.name));
  }

  // An interrupted sequence is not the requested result.
  void judge(const PromptTable& prompt, Generation& generation) const {
    Measurement& m = generation.measurement;
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

  void keep(const GenerationLabel& label, const Generation& generation) {
    m_failed_check |= generation.measurement.status == CaseStatus::failed_check;
    m_failed |= generation.measurement.status == CaseStatus::error;
    m_generated |= !generation.sequences.empty();
    m_loop.results->add(label, generation);
    say(m_loop.log, "{}", figures_of(label, generation));
  }

  int close() {
    if (m_loop.finish) m_loop.finish();
    if (m_stopped || m_out_of_memory) {
      m_file.checkpoint();
      say(m_loop.log, "stopped ({}); the finished generations are in {}\n", m_stopped.value_or("out of memory"),
          m_file.part_path().string());
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
