// SPDX-License-Identifier: MIT
#include "attention_server.hpp"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "attention_run.hpp"
#include "common/provenance.hpp"
#include "limit_samples.hpp"

namespace kformer::perf {

namespace {

using Json = nlohmann::ordered_json;

Json description(const AttentionCase& c) {
  return {{"name", c.name},
          {"dtype", to_string(c.shape.dtype)},
          {"backward", c.backward},
          {"batch", c.shape.batch},
          {"q_len", c.shape.q_len},
          {"kv_len", c.shape.kv_len},
          {"q_heads", c.shape.q_heads},
          {"kv_heads", c.shape.kv_heads},
          {"head_dim", c.shape.head_dim},
          {"causal", c.options.causal},
          {"window", c.options.window},
          {"flops", c.flops()},
          {"bytes", c.forward_bytes()},
          {"limit", c.is_decode() ? "copy" : "fma"}};
}

class Server {
 public:
  explicit Server(const std::vector<AttentionCase>& cases) : m_cases(cases) {}

  Json answer(const std::string& line) {
    std::istringstream words(line);
    std::string request, name;
    std::int64_t count = 1;
    words >> request >> name >> count;
    if (request == "about") return about();
    if (request == "cases") return list();
    if (request == "time") return time(name, count);
    if (request == "limit") return {{"per_second", m_limits.of(find(name))}};
    throw NotSupported("'" + request + "' is not a request; use about, cases, time or limit");
  }

 private:
  Json about() const {
    return {{"version", drivers::version_line("kformer-perf-attention")},
            {"isa", drivers::host_fma().instructions},
            {"threads", Space().concurrency()},
            {"cache_bytes", last_level_cache_bytes()}};
  }

  Json list() const {
    Json all = Json::array();
    for (const auto& c : m_cases) all.push_back(description(c));
    return all;
  }

  Json time(const std::string& name, std::int64_t count) {
    if (name != m_name) {
      m_run.reset();  // before the next one takes memory
      m_run = make_attention_run(find(name));
      m_name = name;
    }
    std::vector<double> seconds;
    for (std::int64_t i = 0; i < count; ++i) seconds.push_back(m_run->seconds());
    return {{"kernel", m_run->kernel()}, {"seconds", seconds}};
  }

  const AttentionCase& find(const std::string& name) const {
    const auto found =
        std::find_if(m_cases.begin(), m_cases.end(), [&](const AttentionCase& c) { return c.name == name; });
    if (found == m_cases.end())
      throw NotSupported("there is no case '" + name + "'; the request 'cases' lists all");
    return *found;
  }

  const std::vector<AttentionCase>& m_cases;
  LimitSamples m_limits;
  std::string m_name;
  std::unique_ptr<AttentionRun> m_run;
};

}  // namespace

void serve(const std::vector<AttentionCase>& cases, std::istream& in, std::ostream& out) {
  Server server(cases);
  for (std::string line; std::getline(in, line);) {
    try {
      out << server.answer(line).dump() << std::endl;
    } catch (const std::exception& error) {
      out << Json{{"error", error.what()}}.dump() << std::endl;
    }
  }
}

}  // namespace kformer::perf
