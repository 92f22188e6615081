// SPDX-License-Identifier: MIT
#include "train/checkpoint_record.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

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

// The JSON library would convert any number, and one that no integer holds has no value then.
std::int64_t count_of(const Json& json, const char* key) {
  constexpr std::uint64_t most = std::uint64_t(1) << 62;  // a run goes on counting
  const Json& value = json.at(key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most)
    throw FileError(fmt::format("its '{}' is {}, expected an integer in [0, {}]", key, value.dump(), most));
  return value.get<std::int64_t>();
}

TrainerState state_of(const Json& json) {
  TrainerState s;
  s.steps = count_of(json, "steps");
  s.optimizer.steps = count_of(json, "optimizer_steps");
  s.optimizer.skipped = count_of(json, "skipped");
  s.optimizer.loss_scale = number_of(json.at("loss_scale"));
  s.optimizer.good_steps = count_of(json, "good_steps");
  s.spike_losses = numbers_of(json.at("spike_losses"));
  s.spike_norms = numbers_of(json.at("spike_norms"));
  return s;
}

// How values are in a file.
template <class T>
struct Stored {
  using Type = T;
};
template <>
struct Stored<bool> {
  using Type = std::uint8_t;
};

template <class T>
constexpr const char* type_name = sizeof(T) == 1                ? "U8"
                                  : std::is_floating_point_v<T> ? "F64"
                                                                : "I64";

// A column for each number of a record.
template <class Visitor, class History>
void visit_columns(Visitor& v, History& h) {
  v("steps.step", h.steps, &StepRecord::step);
  v("steps.loss", h.steps, &StepRecord::loss);
  v("steps.learning_rate", h.steps, &StepRecord::learning_rate);
  v("steps.gradient_norm", h.steps, &StepRecord::gradient_norm);
  v("steps.loss_scale", h.steps, &StepRecord::loss_scale);
  v("steps.tokens", h.steps, &StepRecord::tokens);
  v("steps.skipped", h.steps, &StepRecord::skipped);
  v("steps.time", h.steps, &StepRecord::time);
  v("evaluations.step", h.evaluations, &EvaluationRecord::step);
  v("evaluations.loss", h.evaluations, &EvaluationRecord::loss);
  v("evaluations.time", h.evaluations, &EvaluationRecord::time);
  v("samples.step", h.samples, &SampleRecord::step);
}

// Figures have columns of their own.
constexpr std::string_view step_figures = "steps.figures.", evaluation_figures = "evaluations.figures.";

template <class Record>
void write_figures(CheckpointColumns& columns, std::string_view prefix, const std::vector<Record>& records) {
  std::map<std::string, std::vector<double>> all;
  for (std::size_t i = 0; i < records.size(); ++i)
    for (const auto& [name, value] : records[i].figures) {
      auto& column = all[name];
      column.resize(records.size(), std::numeric_limits<double>::quiet_NaN());
      column[i] = value;
    }
  for (const auto& [name, values] : all) {
    const auto bytes = std::as_bytes(std::span(values));
    columns[std::string(prefix) + name] = {"F64", {bytes.begin(), bytes.end()}};
  }
}

template <class Record>
void read_figures(const CheckpointColumns& columns, std::string_view prefix, std::vector<Record>& records) {
  for (const auto& [name, column] : columns) {
    if (!name.starts_with(prefix)) continue;
    if (column.dtype != "F64" || column.bytes.size() != records.size() * sizeof(double))
      throw FileError(fmt::format("its column '{}' has {} bytes of type {}, expected {} numbers of type F64",
                                  name, column.bytes.size(), column.dtype, records.size()));
    for (std::size_t i = 0; i < records.size(); ++i)
      std::memcpy(&records[i].figures[name.substr(prefix.size())], column.bytes.data() + i * sizeof(double),
                  sizeof(double));
  }
}

constexpr const char* sample_texts = "samples.texts";

struct ColumnWriter {
  CheckpointColumns& columns;

  template <class Record, class Base, class T>
  void operator()(const char* name, const std::vector<Record>& records, T Base::* member) {
    using Number = typename Stored<T>::Type;
    CheckpointColumn column{type_name<Number>, std::vector<std::byte>(records.size() * sizeof(Number))};
    for (std::size_t i = 0; i < records.size(); ++i) {
      const auto number = static_cast<Number>(records[i].*member);
      std::memcpy(column.bytes.data() + i * sizeof number, &number, sizeof number);
    }
    columns.emplace(name, std::move(column));
  }
};

const CheckpointColumn& column_of(const CheckpointColumns& columns, const char* name) {
  const auto column = columns.find(name);
  if (column == columns.end())
    throw FileError(
        fmt::format("it has no column '{}'; an earlier version of the program may have written it", name));
  return column->second;
}

struct ColumnReader {
  const CheckpointColumns& columns;

  // The first column of a table has its length.
  template <class Record, class Base, class T>
  void operator()(const char* name, std::vector<Record>& records, T Base::* member) {
    using Number = typename Stored<T>::Type;
    const CheckpointColumn& column = column_of(columns, name);
    const std::size_t count = column.bytes.size() / sizeof(Number);
    if (std::string_view(name).ends_with(".step")) records.resize(count);
    if (column.dtype != type_name<Number> || count != records.size())
      throw FileError(fmt::format("its column '{}' has {} numbers of type {}, expected {} of type {}", name,
                                  count, column.dtype, records.size(), type_name<Number>));
    for (std::size_t i = 0; i < count; ++i) {
      Number number;
      std::memcpy(&number, column.bytes.data() + i * sizeof number, sizeof number);
      records[i].*member = static_cast<T>(number);
    }
  }
};

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

TrainingHistory history_of(const CheckpointColumns& columns) {
  TrainingHistory history;
  ColumnReader reader{columns};
  visit_columns(reader, history);
  read_figures(columns, step_figures, history.steps);
  read_figures(columns, evaluation_figures, history.evaluations);
  const CheckpointColumn& texts = column_of(columns, sample_texts);
  const auto* begin = reinterpret_cast<const char*>(texts.bytes.data());
  const Json all = Json::parse(begin, begin + texts.bytes.size());
  for (std::size_t i = 0; i < history.samples.size(); ++i) {
    history.samples[i].prompt = all.at(i).at(0);
    history.samples[i].text = all.at(i).at(1);
  }
  return history;
}

}  // namespace

std::string checkpoint_text(const CheckpointText& contents) {
  return dump({{"run", contents.run}, {"settings", contents.settings}, {"state", json_of(contents.state)}});
}

CheckpointColumns checkpoint_columns(const TrainingHistory& history) {
  CheckpointColumns columns;
  ColumnWriter writer{columns};
  visit_columns(writer, history);
  write_figures(columns, step_figures, history.steps);
  write_figures(columns, evaluation_figures, history.evaluations);
  Json samples = Json::array();
  for (const SampleRecord& s : history.samples) samples.push_back(Json::array({s.prompt, s.text}));
  const std::string text = dump(samples);
  const auto bytes = std::as_bytes(std::span(text));
  columns[sample_texts] = {"U8", {bytes.begin(), bytes.end()}};
  return columns;
}

CheckpointRecord checkpoint_record(const std::string& text, const CheckpointColumns& columns,
                                   const std::string& source) {
  CheckpointRecord record;
  const auto refuse = [&](const std::exception& error) {
    throw FileError(fmt::format("{}: not written by kformer-train: {}", source, error.what()));
  };
  try {
    const Json all = Json::parse(text);
    record.run = all.at("run").get<std::map<std::string, std::string>>();
    record.settings = all.at("settings").get<std::map<std::string, std::string>>();
    record.state = state_of(all.at("state"));
    record.history = history_of(columns);
  } catch (const Json::exception& error) {
    refuse(error);
  } catch (const FileError& error) {
    refuse(error);
  }
  return record;
}

std::string changes_text(const std::map<std::string, std::string>& now,
                         const std::map<std::string, std::string>& then) {
  std::string changes;
  for (const auto& [key, value] : now)
    if (const auto before = then.find(key); before != then.end() && before->second != value)
      changes += fmt::format("{}{} was {} and is {}", changes.empty() ? "" : ", ", key, before->second, value);
  return changes;
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
        fmt::format("{} belongs to another run; name another checkpoint.folder, or set "
                    "checkpoint.resume = false and empty it:{}",
                    source, faults));
}

}  // namespace kformer::drivers
