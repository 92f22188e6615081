// SPDX-License-Identifier: MIT
#include "server.hpp"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "limit_samples.hpp"
#include "measure/provenance.hpp"

namespace kformer::perf {

namespace {

using Json = nlohmann::ordered_json;

const char* to_string(Limit limit) {
  static constexpr const char* names[] = {"arithmetic", "memory", "sum"};
  return names[static_cast<int>(limit)];
}

Json description(const Case& c) {
  Json json{{"name", c.name()},
            {"block", c.block},
            {"direction", c.direction},
            {"dtype", kformer::to_string(c.dtype)},
            {"limit", to_string(c.limit)},
            {"flops", c.flops},
            {"bytes", c.bytes},
            {"written", c.written},
            {"int8", c.int8}};
  for (const auto& [key, number] : c.shape) json[key] = number;
  return json;
}

class Server {
 public:
  Server(const std::string& program, const std::vector<Case>& cases, std::size_t rotated)
      : m_program(program), m_cases(cases), m_rotated(rotated) {}

  Json answer(const std::string& line) {
    std::istringstream words(line);
    std::string request, name;
    std::int64_t count = 1;
    words >> request >> name >> count;
    if (request == "about") return about();
    if (request == "cases") return list();
    if (request == "time") return time(name, count);
    if (request == "limit") return {{"seconds", m_limits.least_seconds(find(name))}};
    throw NotSupported("'" + request + "' is not a request; use about, cases, time or limit");
  }

 private:
  Json about() const {
    return {{"version", measure::version_line(m_program)},
            {"isa", measure::burst_instructions()},
            {"device", device_name()},
            {"threads", Space().concurrency()},
            {"rotated_bytes", m_rotated}};
  }

  Json list() const {
    Json all = Json::array();
    for (const auto& c : m_cases) all.push_back(description(c));
    return all;
  }

  Json time(const std::string& name, std::int64_t count) {
    if (name != m_name) {
      m_run.reset();  // before the next one takes memory
      m_name.clear();
      m_run = find(name).make(m_rotated);
      m_name = name;
    }
    std::vector<double> seconds;
    for (std::int64_t i = 0; i < count; ++i) seconds.push_back(m_run->seconds());
    return {{"kernel", m_run->kernel()}, {"launches", m_run->launches()}, {"seconds", seconds}};
  }

  const Case& find(const std::string& name) const {
    const auto found =
        std::find_if(m_cases.begin(), m_cases.end(), [&](const Case& c) { return c.name() == name; });
    if (found == m_cases.end())
      throw NotSupported("there is no case '" + name + "'; the request 'cases' lists all");
    return *found;
  }

  const std::string& m_program;
  const std::vector<Case>& m_cases;
  std::size_t m_rotated;
  LimitSamples m_limits;
  std::string m_name;
  std::unique_ptr<Run> m_run;
};

}  // namespace

void serve(const std::string& program, const std::vector<Case>& cases, std::size_t rotated, std::istream& in,
           std::ostream& out) {
  Server server(program, cases, rotated);
  for (std::string line; std::getline(in, line);) {
    try {
      out << server.answer(line).dump() << '\n' << std::flush;
    } catch (const std::exception& error) {
      out << Json{{"error", error.what()}}.dump() << '\n' << std::flush;
    }
  }
}

}  // namespace kformer::perf
