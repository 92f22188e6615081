// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <unistd.h>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kformer/core/error.hpp"
#include "kformer/model/flops.hpp"
#include "objective/sequence_source.hpp"
#include "train/checkpoint_record.hpp"
#include "train/progress.hpp"

namespace {

using namespace kformer;
using namespace kformer::drivers;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

StepRecord step_record(std::int64_t step, double loss, double norm) {
  StepRecord s;
  s.step = step;
  s.loss = loss;
  s.learning_rate = 1e-3 / 3;
  s.gradient_norm = norm;
  s.loss_scale = 65536;
  s.tokens = 100;
  s.skipped = !std::isfinite(norm);
  s.time = 0.1;
  return s;
}

std::vector<EvaluationRecord> evaluations(const std::vector<double>& losses) {
  std::vector<EvaluationRecord> all;
  for (const double loss : losses) all.push_back({std::ssize(all), loss, 0});
  return all;
}

std::string text_of(std::FILE* file) {
  BOOST_REQUIRE(std::fseek(file, 0, SEEK_SET) == 0);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

std::string error_of(const auto& call) {
  try {
    call();
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(training)

BOOST_AUTO_TEST_CASE(a_record_reads_back_to_the_same_bits) {
  CheckpointRecord record;
  record.run = {{"model", "a \"model\""}, {"data", "0123"}};
  record.settings = {{"optimizer.lr", "0.001"}};
  record.state = {7, {5, 2, 1024.0, 3}, {1.0 / 3, 2.5, -infinity}, {0.1, infinity, no_number}};
  record.history.steps = {step_record(0, 1.0 / 3, 0.1), step_record(1, no_number, infinity)};
  record.history.steps[1].figures = {{"margin", 1.0 / 3}, {"accuracy", no_number}};
  record.history.evaluations = {{2, 0.7, 1e-300}};
  record.history.evaluations[0].figures = {{"margin", -0.1}};
  record.history.samples = {{2, "Once\n", "upon \xe2\x82\xac \xff"}};
  const CheckpointRecord again =
      checkpoint_record(checkpoint_text(record), checkpoint_columns(record.history), "file");
  BOOST_TEST((again.run == record.run));
  BOOST_TEST((again.settings == record.settings));
  BOOST_TEST(again.state.steps == 7);
  BOOST_TEST(again.state.optimizer.steps == 5);
  BOOST_TEST(again.state.optimizer.skipped == 2);
  BOOST_TEST(again.state.optimizer.loss_scale == 1024);
  BOOST_TEST(again.state.optimizer.good_steps == 3);
  BOOST_TEST((again.state.spike_losses == record.state.spike_losses));
  BOOST_TEST_REQUIRE(again.state.spike_norms.size() == 3u);
  BOOST_TEST((again.state.spike_norms[0] == 0.1 && again.state.spike_norms[1] == infinity));
  BOOST_TEST(std::isnan(again.state.spike_norms[2]));
  BOOST_TEST_REQUIRE(again.history.steps.size() == 2u);
  const StepRecord &first = again.history.steps[0], &second = again.history.steps[1];
  BOOST_TEST(first.loss == 1.0 / 3);
  BOOST_TEST(first.learning_rate == 1e-3 / 3);
  BOOST_TEST(first.gradient_norm == 0.1);
  BOOST_TEST((first.tokens == 100 && !first.skipped && first.time == 0.1 && first.loss_scale == 65536));
  BOOST_TEST(
      (second.step == 1 && std::isnan(second.loss) && second.gradient_norm == infinity && second.skipped));
  // Where a figure is absent it is no number.
  BOOST_TEST((std::isnan(first.figures.at("margin")) && second.figures.at("margin") == 1.0 / 3));
  BOOST_TEST((second.figures.size() == 2u && std::isnan(second.figures.at("accuracy"))));
  BOOST_TEST(again.history.evaluations[0].figures.at("margin") == -0.1);
  BOOST_TEST(again.history.evaluations[0].loss == 0.7);
  BOOST_TEST(again.history.evaluations[0].time == 1e-300);
  BOOST_TEST(again.history.samples[0].prompt == "Once\n");
  BOOST_TEST(again.history.samples[0].text == "upon \xe2\x82\xac \xef\xbf\xbd");
}

BOOST_AUTO_TEST_CASE(the_last_step_tells_whether_a_training_failed) {
  const StepRecord good = step_record(0, 1, 1);  // with a loss scale of 65536
  StepRecord overflow = step_record(1, 1, infinity), lost = step_record(1, no_number, no_number), empty = lost;
  empty.tokens = 0;
  const StepRecord broken = empty;  // a model that diverged sampled no target
  empty.gradient_norm = 0;
  BOOST_TEST(failure_text({}, 1) == "");
  BOOST_TEST(failure_text({good, lost, good}, 1) == "");
  BOOST_TEST(failure_text({good, empty}, 1) == "");
  BOOST_TEST(failure_text({good, overflow}, 1) == "");  // the loss scale falls, and the next step counts
  BOOST_TEST(
      failure_text({good, overflow}, 65536)
          .starts_with("the training diverged: the gradients of the last step are not finite, and the weights "
                       "are those after step 1 of 2; "));
  BOOST_TEST(
      failure_text({good, lost}, 1).starts_with("the training diverged: the loss of the last step is not "));
  BOOST_TEST(
      failure_text({lost}, 1).ends_with("no step changed the weights; look at the weights that it began with"));
  BOOST_TEST(failure_text({overflow, overflow}, 1)
                 .starts_with("no step changed the weights: no gradients were finite"));
  BOOST_TEST(failure_text({empty, empty}, 1).starts_with("no step had a target with a loss, "));
  BOOST_TEST(
      failure_text({good, broken}, 1).starts_with("the training diverged: the loss of the last step is not "));
  BOOST_TEST(failure_text({broken}, 1)
                 .ends_with("no step changed the weights; look at the weights that it began with"));
  StepRecord judged = good, unjudged = good;
  judged.figures["reward"] = 0;
  unjudged.figures["reward"] = no_number;
  BOOST_TEST(failure_text({judged, unjudged}, 1) == "");
  BOOST_TEST(failure_text({unjudged, unjudged}, 1).starts_with("no completion of any step had a reward, "));
  StepRecord unwritten = broken;
  unwritten.figures["reward"] = no_number;
  BOOST_TEST(failure_text({unwritten, unwritten}, 1)
                 .ends_with("no step changed the weights; look at the weights that it began with"));
}

BOOST_AUTO_TEST_CASE(another_text_is_no_record) {
  for (const char* text : {"", "{}", "[1]", "{\"run\": 3}"})
    BOOST_TEST(error_of([&] { checkpoint_record(text, {}, "x.safetensors"); }).starts_with("x.safetensors: "),
               text);
}

BOOST_AUTO_TEST_CASE(a_checkpoint_counts_in_integers) {
  const CheckpointRecord record;
  const std::string text = checkpoint_text(record), key = "\"good_steps\":";
  const std::size_t place = text.find(key + "0");
  BOOST_TEST_REQUIRE(place != text.npos);
  const auto with = [&](const std::string& count) {
    std::string changed = text;
    changed.replace(place + key.size(), 1, count);
    return error_of([&] { checkpoint_record(changed, checkpoint_columns(record.history), "x"); });
  };
  BOOST_TEST(with("4611686018427387904") == "no error");
  for (const char* count : {"-1", "1.5", "1e300", "true", "4611686018427387905", "18446744073709551615"})
    BOOST_TEST(with(count).starts_with("x: not written by kformer-train: its 'good_steps' is "), count);
}

BOOST_AUTO_TEST_CASE(the_text_of_a_checkpoint_does_not_grow_with_its_steps) {
  CheckpointRecord record;
  const std::size_t length = checkpoint_text(record).size();
  for (std::int64_t i = 0; i < 1000; ++i) {
    record.history.steps.push_back(step_record(i, 1, 1));
    record.history.evaluations.push_back({i, 1, 1});
    record.history.samples.push_back({i, "a", "b"});
  }
  BOOST_TEST(checkpoint_text(record).size() == length);
  const CheckpointColumns columns = checkpoint_columns(record.history);
  BOOST_TEST(columns.at("steps.loss").dtype == "F64");
  BOOST_TEST(columns.at("steps.tokens").dtype == "I64");
  BOOST_TEST(columns.at("steps.tokens").bytes.size() == 8000u);
}

BOOST_AUTO_TEST_CASE(columns_that_are_absent_or_of_another_length_are_named) {
  CheckpointRecord record;
  record.history.steps = {step_record(0, 1, 1)};
  const std::string text = checkpoint_text(record);
  CheckpointColumns columns = checkpoint_columns(record.history);
  columns.at("steps.time").bytes.resize(16);
  BOOST_TEST(error_of([&] {
               checkpoint_record(text, columns, "x");
             }).ends_with("its column 'steps.time' has 2 numbers of type F64, expected 1 of type F64"));
  columns = checkpoint_columns(record.history);
  columns["steps.figures.margin"] = {"F64", std::vector<std::byte>(16)};
  BOOST_TEST(
      error_of([&] { checkpoint_record(text, columns, "x"); })
          .ends_with(
              "its column 'steps.figures.margin' has 16 bytes of type F64, expected 1 numbers of type F64"));
  columns.erase("steps.loss");
  BOOST_TEST(
      error_of([&] {
        checkpoint_record(text, columns, "x");
      }).ends_with("it has no column 'steps.loss'; an earlier version of the program may have written it"));
}

BOOST_AUTO_TEST_CASE(settings_that_changed_are_named) {
  BOOST_TEST(changes_text({{"a", "1"}, {"b", "2"}, {"c", "3"}}, {{"a", "1"}, {"b", "4"}, {"c", "5"}}) ==
             "b was 4 and is 2, c was 5 and is 3");
  BOOST_TEST(changes_text({{"a", "1"}, {"b", "2"}}, {{"a", "1"}}).empty());
}

BOOST_AUTO_TEST_CASE(a_run_continues_only_itself) {
  const std::map<std::string, std::string> run{{"batch.seq_len", "16"}, {"data", "a"}};
  BOOST_TEST(error_of([&] { require_same_run(run, run, "file"); }) == "no error");
  const std::string text = error_of([&] { require_same_run(run, {{"data", "b"}}, "file"); });
  BOOST_TEST(text.find("batch.seq_len: nothing in the checkpoint, 16 in this run") != text.npos);
  BOOST_TEST(text.find("data: b in the checkpoint, a in this run") != text.npos);
}

BOOST_AUTO_TEST_CASE(patience_counts_evaluations_without_a_better_loss) {
  const EarlyStopTable two{2, 0};
  BOOST_TEST(!stops_early(two, {}));
  BOOST_TEST(!stops_early(two, evaluations({3, 2, 1})));
  BOOST_TEST(!stops_early(two, evaluations({3, 2, 2})));
  BOOST_TEST(stops_early(two, evaluations({3, 2, 2, 2.5})));
  BOOST_TEST(!stops_early(two, evaluations({3, 2, 2, 1.9})));
  BOOST_TEST(stops_early(two, evaluations({3, no_number, no_number})));
  BOOST_TEST(!stops_early(EarlyStopTable{2, 0.5}, evaluations({3, 2.6, 2.4})));
  BOOST_TEST(stops_early(EarlyStopTable{2, 0.5}, evaluations({3, 2.9, 2.6})));
}

BOOST_AUTO_TEST_CASE(a_line_of_progress) {
  const ProgressScale scale{100, {1.5e6, 1000}, 1e10, "1.50 GiB"};
  StepRecord step = step_record(39, 2.34567, 0.8125);
  BOOST_TEST(
      progress_line(scale, step, {.seconds = 0.5, .tokens = 1000, .pairs = 500'000}) ==
      "step 40/100  loss 2.3457  lr 3.33e-04  norm 0.812  scale 65536  2000 tokens/s  MFU 40 %  1.50 GiB  "
      "ETA 30 s");
  step.loss_scale = 1;
  step.skipped = true;
  const ProgressScale unknown{100, {2e6, 0}, no_number, "1.50 GiB"};
  const auto pace = [](double seconds) { return Pace{.seconds = seconds, .tokens = 1e6}; };
  BOOST_TEST(progress_line(unknown, step, pace(20)) ==
             "step 40/100  loss 2.3457  lr 3.33e-04  norm 0.812  skipped  50k tokens/s  1.50 GiB  ETA 20 min");
  BOOST_TEST(progress_line(unknown, step, pace(0)).ends_with("skipped  1.50 GiB"));
  BOOST_TEST(progress_line(unknown, step, pace(2.02)).ends_with("ETA 3 min"));
  BOOST_TEST(progress_line(unknown, step, pace(125)).ends_with("ETA 2:05 h"));
  step.loss_scale = 0.5;
  BOOST_TEST(progress_line(unknown, step, pace(0)).find("  scale 0.5  ") != std::string::npos);
  step.loss = step.gradient_norm = std::copysign(no_number, -1);
  BOOST_TEST(progress_line(unknown, step, pace(0)).find("loss nan  lr 3.33e-04  norm nan") !=
             std::string::npos);
}

// Between two lines of a log pass seconds; the last step has one in any case.
BOOST_AUTO_TEST_CASE(a_log_ends_with_the_last_step) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> log(std::tmpfile(), &std::fclose);
  Progress progress({3, {1, 0}, no_number, "0 B"}, log.get());
  for (std::int64_t i = 0; i < 3; ++i) {
    StepRecord step = step_record(i, 1, 1);
    step.time = static_cast<double>(1 + i);
    step.computed.add(i == 0 ? 10 : 20, 100);
    progress.step(step);
  }
  progress.finish();
  progress.finish();
  const std::string text = text_of(log.get());
  BOOST_TEST(text.starts_with("step 1/3  "));
  // 1 s, then a tenth of the way to 2 s, then to 3 s; likewise 1000, 1100 and 1190 tokens.
  BOOST_TEST(
      text.find("\nstep 3/3  loss 1.0000  lr 3.33e-04  norm 1  scale 65536  922.5 tokens/s  0 B  ETA 0 s\n") !=
      std::string::npos);
  BOOST_TEST(std::ranges::count(text, '\n') == 2);
}

BOOST_AUTO_TEST_CASE(a_terminal_has_a_bar) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  BOOST_TEST_REQUIRE((master >= 0 && ::grantpt(master) == 0 && ::unlockpt(master) == 0));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> terminal(std::fopen(::ptsname(master), "w"),
                                                                 &std::fclose);
  Progress progress({4, {1, 0}, no_number, "0 B"}, terminal.get());
  progress.step(step_record(1, 1, 1));
  std::string text(4096, '\0');
  text.resize(static_cast<std::size_t>(::read(master, text.data(), text.size())));
  BOOST_TEST(text.starts_with("\r[==========          ] step 2/4  loss"));
  ::close(master);
}

BOOST_AUTO_TEST_CASE(flop_of_a_token) {
  LlamaConfig c;
  c.hidden_size = 8;
  c.intermediate_size = 16;
  c.num_attention_heads = c.num_key_value_heads = 2;
  c.head_dim = 4;
  c.num_hidden_layers = 3;
  c.vocab_size = 10;
  c.tie_word_embeddings = true;
  // 4·8·8 + 3·16·8 + 2·8 = 656 in a layer, 8 + 80 outside.
  BOOST_TEST(training_flops_per_token(c, 5) == 6.0 * (3 * 656 + 88) + 12.0 * 3 * 8 * 5);
}

BOOST_AUTO_TEST_CASE(no_task_is_learnt_and_judged_by) {
  TrainDeck deck;
  deck.data.format = DataFormat::synthetic;
  deck.data.packing = Packing::pad;
  deck.data.task = SyntheticTask::reverse;
  deck.data.length = 12;
  deck.data.examples = 50;
  deck.batch.seq_len = 40;
  deck.evaluation.emplace();
  LanguageModelTable model;
  model.vocab_size = 512;
  const TrainingData data = open_training_data(deck, model, nullptr);
  const auto texts = [](const SequenceSource& source) {
    std::set<std::vector<std::int32_t>> all;
    TokenSequence sequence;
    for (std::int64_t i = 0; i < source.size(); ++i) {
      source.read(i, sequence);
      all.insert(sequence.ids);
    }
    return all;
  };
  const auto learnt = texts(*data.train), judged_by = texts(*data.validation);
  BOOST_TEST(judged_by.size() > 40);
  for (const auto& text : judged_by) BOOST_TEST(!learnt.contains(text));
}

BOOST_AUTO_TEST_SUITE_END()
