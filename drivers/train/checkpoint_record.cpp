// SPDX-License-Identifier: MIT
#include "train/checkpoint_record.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <cmath>

#include "kformer/core/error.hpp"

namespace kformer::drivers {

namespace {

using Json = nlohmann::json;

// JSON has no numbers that are not finite.
Json json_of(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

double number_of(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const auto text = json.get<std::string>();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return text == "inf" ? infinity : text == "-inf" ? -infinity : std::numeric_limits<double>::quiet_NaN();
}

Json json_of(const std::vector<double>& values) {
  Json all = Json::array();
  for (const double value : values) all.push_back(json_of(value));
  return all;
}

std::vector<double> numbers_of(const Json& json) {
  std::vector<double> values;
  for (const Json& value : json) values.push_back(number_of(value));
  return values;
}

Json json_of(const TrainerState& s) {
  return {{"steps", s.steps},
          {"optimizer_steps", s.optimizer.steps},
          {"skipped", s.optimizer.skipped},
          {"loss_scale", json_of(s.optimizer.loss_scale)},
          {"good_steps", s.optimizer.good_steps},
          {"spike_losses", json_of(s.spike_losses)},
          {"spike_norms", json_of(s.spike_norms)}};
}

TrainerState state_of(const Json& json) {
  TrainerState s;
  s.steps = json.at("steps");
  s.optimizer.steps = json.at("optimizer_steps");
  s.optimizer.skipped = json.at("skipped");
  s.optimizer.loss_scale = number_of(json.at("loss_scale"));
  s.optimizer.good_steps = json.at("good_steps");
  s.spike_losses = numbers_of(json.at("spike_losses"));
  s.spike_norms = numbers_of(json.at("spike_norms"));
  return s;
}

// Steps are lists: there are many of them.
Json json_of(const StepRecord& s) {
  return {s.step,   json_of(s.loss), json_of(s.learning_rate), json_of(s.gradient_norm), json_of(s.loss_scale),
          s.tokens, s.skipped,       json_of(s.time)};
}

StepRecord step_of(const Json& json) {
  StepRecord s;
  s.step = json.at(0);
  s.loss = number_of(json.at(1));
  s.learning_rate = number_of(json.at(2));
  s.gradient_norm = number_of(json.at(3));
  s.loss_scale = number_of(json.at(4));
  s.tokens = json.at(5);
  s.skipped = json.at(6);
  s.time = number_of(json.at(7));
  return s;
}

}  // namespace

std::string checkpoint_text(const CheckpointRecord& record) {
  Json steps = Json::array(), evaluations = Json::array(), samples = Json::array();
  for (const StepRecord& s : record.history.steps) steps.push_back(json_of(s));
  for (const EvaluationRecord& e : record.history.evaluations)
    evaluations.push_back(Json::array({e.step, json_of(e.loss), json_of(e.time)}));
  for (const SampleRecord& s : record.history.samples)
    samples.push_back(Json::array({s.step, s.prompt, s.text}));
  const Json all{{"run", record.run},
                 {"state", json_of(record.state)},
                 {"steps", std::move(steps)},
                 {"evaluations", std::move(evaluations)},
                 {"samples", std::move(samples)}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

CheckpointRecord checkpoint_record(const std::string& text, const std::string& source) {
  CheckpointRecord record;
  try {
    const Json all = Json::parse(text);
    record.run = all.at("run").get<std::map<std::string, std::string>>();
    record.state = state_of(all.at("state"));
    for (const Json& s : all.at("steps")) record.history.steps.push_back(step_of(s));
    for (const Json& e : all.at("evaluations"))
      record.history.evaluations.push_back({e.at(0), number_of(e.at(1)), number_of(e.at(2))});
    for (const Json& s : all.at("samples")) record.history.samples.push_back({s.at(0), s.at(1), s.at(2)});
  } catch (const Json::exception& error) {
    throw FileError(fmt::format("{}: not written by kformer-train: {}", source, error.what()));
  }
  return record;
}

void require_same_run(const std::map<std::string, std::string>& now,
                      const std::map<std::string, std::string>& then, const std::string& source) {
  std::string faults;
  for (const auto& [key, value] : now) {
    const auto before = then.find(key);
    const std::string had = before == then.end() ? "nothing" : before->second;
    if (had != value) faults += fmt::format("\n  {}: {} in the checkpoint, {} in this run", key, had, value);
  }
  if (!faults.empty())
    throw FileError(
        fmt::format("{} is of another run; name another checkpoint.folder, or set "
                    "checkpoint.resume = false and empty it:{}",
                    source, faults));
}

}  // namespace kformer::drivers
