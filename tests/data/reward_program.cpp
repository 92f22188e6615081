// SPDX-License-Identifier: MIT
// Rewards of external programs: what they are told and answer, and every way in which they fail.
#include <boost/test/unit_test.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "error_text.hpp"
#include "kformer/data/rewards.hpp"
#include "scratch_directory.hpp"

namespace kformer::Testing {
namespace {

using namespace std::chrono_literals;

const PromptSample question{{1}, "\"2+2=\"", {{"answer", "4"}, {"more", R"({"a":[1,null]})"}}};
const std::string answers_1 = R"(while read -r line; do echo '{"reward": 1}'; done)";

/// A reward that a shell computes.
Rewards shell(const std::string& script, double timeout_s = 20) {
  return Rewards({{.kind = RewardKind::program, .command = {"sh", "-c", script}, .timeout_s = timeout_s}});
}

double reward_of(Rewards& rewards, const std::string& completion = "x") {
  return rewards.score({question, completion}).total;
}

std::string failure_of(Rewards& rewards, const std::string& completion = "x") {
  return error_text<RewardError>([&] { reward_of(rewards, completion); });
}

/// What an answer of this text, an end of line included, is.
std::string failure_of_answer(const std::string& text) {
  Rewards rewards = shell("read -r line; printf '" + text + "'; read -r line");
  return failure_of(rewards);
}

const std::string failed = "kformer::Rewards: the program 'sh' failed: ";

bool has_children() { return ::waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD; }

/// Whether a process runs, and is not the zombie that whoever inherits it may leave.
bool is_running(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string number, name, state;
  return (file >> number >> name >> state) && state != "Z" && state != "X";
}

bool ends_soon(int process) {
  for (int i = 0; i < 200 && is_running(process); ++i) std::this_thread::sleep_for(10ms);
  return !is_running(process);
}

/// Seconds that `call` takes.
template <class F>
double seconds(F&& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(reward_program)

BOOST_AUTO_TEST_CASE(it_is_asked_a_line_at_a_time) {
  const ScratchDirectory folder;
  const std::string file = folder / "asked";
  {
    Rewards rewards = shell("n=0; while read -r line; do n=$((n+1)); printf '%s\\n' \"$line\" >> '" + file +
                            "'; echo \"{\\\"reward\\\": $n.5, \\\"why\\\": \\\"\\\"}\"; done");
    BOOST_TEST(reward_of(rewards, "4\n\"\xFF") == 1.5);
    BOOST_TEST(reward_of(rewards, "5") == 2.5);
  }
  BOOST_TEST(
      contents_of(file) ==
      "{\"answer\":4,\"completion\":\"4\\n\\\"\xEF\xBF\xBD\",\"more\":{\"a\":[1,null]},\"prompt\":\"2+2=\"}\n"
      "{\"answer\":4,\"completion\":\"5\",\"more\":{\"a\":[1,null]},\"prompt\":\"2+2=\"}\n");
  BOOST_TEST(!has_children());
}

BOOST_AUTO_TEST_CASE(a_completion_takes_the_place_of_a_field) {
  const ScratchDirectory folder;
  const std::string file = folder / "asked";
  const PromptSample hostile{{1}, R"([{"content":"q","role":"user"}])", {{"completion", "7"}}};
  Rewards rewards = shell("read -r line; printf '%s' \"$line\" > '" + file + R"('; echo '{"reward": 0}')");
  rewards.check(hostile);
  BOOST_TEST(rewards.score({hostile, "5"}).total == 0);
  BOOST_TEST(contents_of(file) == R"({"completion":"5","prompt":[{"content":"q","role":"user"}]})");
  const PromptSample long_number{{1}, R"("q")", {{"answer", "100000000000000000001"}, {"digits", "1.50"}}};
  Rewards others = shell("read -r line; printf '%s' \"$line\" > '" + file + R"('; echo '{"reward": 0}')");
  BOOST_TEST(others.score({long_number, "5"}).total == 0);
  BOOST_TEST(contents_of(file) ==
             R"({"answer":100000000000000000001,"completion":"5","digits":1.50,"prompt":"q"})");
}

BOOST_AUTO_TEST_CASE(what_it_cannot_judge) {
  Rewards rewards({{.kind = RewardKind::program,
                    .command = {"sh", "-c", R"(while read -r line; do echo '{"reward": null}'; done)"}},
                   {.kind = RewardKind::length, .weight = 3, .target = 2}});
  const RewardScore score = rewards.score({question, "x", 1});
  BOOST_TEST(score.total == 1.5);
  BOOST_TEST(std::isnan(score.each[0]));
  Rewards alone = shell(R"(read -r line; echo '{"reward": null}')");
  BOOST_TEST(std::isnan(reward_of(alone)));
}

BOOST_AUTO_TEST_CASE(long_lines) {
  Rewards rewards = shell(R"(while read -r line; do echo "{\"reward\": ${#line}}"; done)");
  const std::string line = R"({"answer":4,"completion":"","more":{"a":[1,null]},"prompt":"2+2="})";
  for (const std::size_t length : {1u, 300'000u, 0u})
    BOOST_TEST(reward_of(rewards, std::string(length, 'x')) == static_cast<double>(line.size() + length));
}

BOOST_AUTO_TEST_CASE(answers_in_pieces) {
  Rewards rewards = shell(R"(read -r line; printf '{"rew'; sleep 0.05; printf 'ard": 2}'; sleep 0.05; echo)");
  BOOST_TEST(reward_of(rewards) == 2);
}

BOOST_AUTO_TEST_CASE(a_program_that_cannot_be_started) {
  BOOST_TEST(error_text<RewardError>([] {
               Rewards({{.kind = RewardKind::program, .command = {"/nowhere/program"}}});
             }) == "kformer::Rewards: cannot start '/nowhere/program': No such file or directory");
  BOOST_TEST(error_text<RewardError>([] { Rewards({{.kind = RewardKind::program, .command = {"/"}}}); }) ==
             "kformer::Rewards: cannot start '/': Permission denied");
  BOOST_TEST(!has_children());
}

BOOST_AUTO_TEST_CASE(a_program_that_ends) {
  Rewards at_once = shell("exit 3");
  BOOST_TEST(failure_of(at_once) == failed + "it ended with exit code 3");
  BOOST_TEST(failure_of(at_once) ==
             "kformer::Rewards: the program 'sh' is not asked again, because it ended with exit code 3");
  Rewards before_it_answers = shell("read -r line; exit 0");
  BOOST_TEST(failure_of(before_it_answers) == failed + "it ended with exit code 0");
  Rewards by_a_signal = shell("read -r line; kill -9 $$");
  BOOST_TEST(failure_of(by_a_signal) == failed + "it was ended by signal 9 (Killed)");
  Rewards later = shell(R"(read -r line; echo '{"reward": 1}')");
  BOOST_TEST(reward_of(later) == 1);
  BOOST_TEST(failure_of(later) == failed + "it ended with exit code 0");
  // More than a pipe holds: to write is what fails.
  Rewards during_a_long_line = shell("head -c 10 > /dev/null; exit 5");
  BOOST_TEST(failure_of(during_a_long_line, std::string(1 << 20, 'x')) == failed + "it ended with exit code 5");
  BOOST_TEST(!has_children());
}

BOOST_AUTO_TEST_CASE(a_program_that_closes_its_streams) {
  Rewards output = shell("exec >&-; sleep 100");
  BOOST_TEST(failure_of(output) == failed + "it closed its output");
  Rewards input = shell("exec <&-; sleep 100");
  // More than a pipe holds, so that some of it is left when the input is closed.
  BOOST_TEST(failure_of(input, std::string(1 << 20, 'x')) == failed + "it closed its input");
}

BOOST_AUTO_TEST_CASE(a_program_that_does_not_answer_in_time) {
  Rewards rewards = shell("read -r line; sleep 100", 0.2);
  std::string text;
  BOOST_TEST(seconds([&] { text = failure_of(rewards); }) < 30);
  BOOST_TEST(text == failed + "it did not answer within 0.2 s");
  // It is not asked for what it would answer too late.
  BOOST_TEST(failure_of(rewards) ==
             "kformer::Rewards: the program 'sh' is not asked again, because it did not answer within 0.2 s");
  BOOST_TEST(!has_children());
  Rewards does_not_read = shell("sleep 100", 0.2);
  BOOST_TEST(failure_of(does_not_read, std::string(1 << 20, 'x')) == failed + "it did not answer within 0.2 s");
}

BOOST_AUTO_TEST_CASE(malformed_answers) {
  const auto malformed = [](const std::string& answer) {
    return failed + "it answered '" + answer + "'; expected {\"reward\": x} with a finite number or null";
  };
  for (const std::string answer :
       {"", "1", "[1]", R"({"reward": "1"})", R"({"reward": true})", R"({"reward": [1]})", R"({"rewards": 1})",
        R"({"reward": 1e999})", R"({"reward": NaN})", R"({"reward": 1)", R"({"reward": 1} 2)"})
    BOOST_TEST(failure_of_answer(answer + "\\n") == malformed(answer));
  BOOST_TEST(failure_of_answer("\\377\\n") == malformed("\xEF\xBF\xBD"));
  const std::string many(90, 'x');
  BOOST_TEST(failure_of_answer(many + "\\n") == malformed(many.substr(0, 80)));
  BOOST_TEST(failure_of_answer(R"({"reward": 1}\n{"reward": 2}\n)") ==
             failed + "it answered with more than one line");
  Rewards endless = shell("read -r line; yes | tr -d '\\n'");
  BOOST_TEST(failure_of(endless) == failed + "its answer has more than 1048576 bytes without an end of line");
  BOOST_TEST(!has_children());
}

BOOST_AUTO_TEST_CASE(answers_to_nothing) {
  const ScratchDirectory folder;
  const std::string file = folder / "said";
  Rewards late = shell(R"(read -r line; echo '{"reward": 1}'; sleep 0.05; echo '{"reward": 2}'; : > ')" + file +
                       "'; sleep 100");
  BOOST_TEST(reward_of(late) == 1);
  while (!std::filesystem::exists(file)) std::this_thread::sleep_for(10ms);
  BOOST_TEST(failure_of(late) == failed + "it said something before it was asked, or more than one line");
  Rewards early = shell(R"(head -c 10 > /dev/null; echo '{"reward": 1}'; sleep 100)");
  BOOST_TEST(failure_of(early, std::string(1 << 20, 'x')) == failed + "it answered before it read the line");
}

BOOST_AUTO_TEST_CASE(nothing_is_left_of_a_program) {
  int program = 0, of_program = 0;
  {
    Rewards rewards = shell(
        R"(read -r l; echo "{\"reward\": $$}"; sleep 100 & read -r l; echo "{\"reward\": $!}"; read -r l)");
    program = static_cast<int>(reward_of(rewards));
    of_program = static_cast<int>(reward_of(rewards));
    BOOST_TEST(is_running(program));
    BOOST_TEST(is_running(of_program));
  }
  BOOST_TEST(!is_running(program));
  BOOST_TEST(ends_soon(of_program));
  BOOST_TEST(!has_children());
}

BOOST_AUTO_TEST_CASE(its_end_is_awaited_but_not_long) {
  const ScratchDirectory folder;
  const std::string file = folder / "done";
  shell("while read -r line; do :; done; echo end > '" + file + "'");
  BOOST_TEST(contents_of(file) == "end\n");
  int program = 0;
  const double stubborn = seconds([&] {
    Rewards rewards =
        shell(R"(trap '' TERM HUP PIPE; read -r l; echo "{\"reward\": $$}"; while true; do sleep 100; done)");
    program = static_cast<int>(reward_of(rewards));
  });
  BOOST_TEST(stubborn > 0.9);
  BOOST_TEST(stubborn < 30);
  BOOST_TEST(!is_running(program));
  BOOST_TEST(!has_children());
}

// Of this process it has the standard error alone: no file, no lock, no ignored signal, no terminal's signals.
BOOST_AUTO_TEST_CASE(what_it_inherits) {
  const int file = ::open("/dev/null", O_RDONLY);
  BOOST_REQUIRE(::dup2(file, 77) == 77);  // without FD_CLOEXEC
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  Rewards rewards = shell(R"(while read -r line; do
      [ -e /proc/self/fd/77 ] && files=1 || files=0
      echo "{\"reward\": $files}"
      kill -PIPE $$
    done)");
  BOOST_TEST(reward_of(rewards) == 0);
  BOOST_TEST(failure_of(rewards) == failed + "it was ended by signal 13 (Broken pipe)");
  std::signal(SIGPIPE, before);
  ::close(77);
  ::close(file);
  Rewards group = shell(
      R"(read -r line; read -r _ _ _ _ group _ < /proc/self/stat; echo "{\"reward\": $group}"; read -r line)");
  BOOST_TEST(reward_of(group) != static_cast<double>(::getpgrp()));
}

BOOST_AUTO_TEST_CASE(a_broken_pipe_is_no_signal) {
  const auto before = std::signal(SIGPIPE, SIG_DFL);
  Rewards rewards = shell("head -c 10 > /dev/null; exit 4");
  BOOST_TEST(failure_of(rewards, std::string(1 << 20, 'x')) == failed + "it ended with exit code 4");
  sigset_t pending, blocked;
  sigemptyset(&pending);
  sigpending(&pending);
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  BOOST_TEST(sigismember(&pending, SIGPIPE) == 0);
  BOOST_TEST(sigismember(&blocked, SIGPIPE) == 0);
  std::signal(SIGPIPE, before);
}

BOOST_AUTO_TEST_CASE(several_programs) {
  Rewards rewards({{.kind = RewardKind::program, .command = {"sh", "-c", answers_1}},
                   {.kind = RewardKind::program, .weight = 10, .command = {"sh", "-c", answers_1}}});
  for (int i = 0; i < 50; ++i) BOOST_TEST(reward_of(rewards) == 11);
  // One that fails does not keep the other from its end.
  Rewards half({{.kind = RewardKind::program, .command = {"sh", "-c", answers_1}},
                {.kind = RewardKind::program, .command = {"sh", "-c", "exit 1"}}});
  BOOST_TEST(failure_of(half) == failed + "it ended with exit code 1");
  BOOST_TEST(error_text<RewardError>([] {
               Rewards({{.kind = RewardKind::program, .command = {"sh", "-c", answers_1}},
                        {.kind = RewardKind::program, .command = {"/nowhere"}}});
             }) == "kformer::Rewards: cannot start '/nowhere': No such file or directory");
}

BOOST_AUTO_TEST_CASE(fields_that_are_not_json) {
  Rewards rewards = shell(answers_1);
  const PromptSample bad{{1}, "\"a\"", {{"answer", "{"}}};
  BOOST_TEST(error_text<RewardError>([&] { rewards.score({bad, "x"}); }) ==
             "kformer::Rewards: the field \"answer\" of a prompt is {, which is not JSON");
  BOOST_TEST(reward_of(rewards) == 1);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
