#include "trireme/base/fault.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

enum class Kind { kKill, kStop, kThrow, kDelay, kErrno };

struct Rule {
  std::optional<int> rank;
  std::optional<uint64_t> step;
  std::optional<uint64_t> count;
  std::string point;
  Kind kind = Kind::kKill;
  int argument = 0;  // milliseconds or errno
  std::atomic<uint64_t> passages{0};
};
using Rules = std::vector<std::unique_ptr<Rule>>;

constexpr std::array<std::string_view, 5> kKeys = {"rank", "step", "point", "kind", "count"};
constexpr std::string_view kExpected =
    "expected TRIREME_FAULT=\"rank=2,step=17,point=NAME,kind=kill|stop|throw|delay:MS|errno:NAME,count=K\"";

[[noreturn]] void fail(std::string_view rule, const std::string& problem) {
  throw UsageError(fmt::format("fault \"{}\": {}", rule, problem), std::string(kExpected));
}

template <typename Number>
Number parse_number(std::string_view rule, std::string_view key, std::string_view text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (stop != end || error != std::errc{} || value < Number{}) {
    fail(rule, fmt::format("{} = \"{}\" is not a number", key, text));
  }
  return value;
}

int errno_named(std::string_view rule, std::string_view name) {
  constexpr int kLastErrno = 200;
  for (int number = 1; number < kLastErrno; ++number) {
    const char* const known = strerrorname_np(number);
    if (known != nullptr && name == known) return number;
  }
  fail(rule, fmt::format("\"{}\" is not an errno such as ENOSPC", name));
}

void parse_kind(std::string_view text, std::string_view value, Rule& rule) {
  const size_t colon = value.find(':');
  const std::string_view name = value.substr(0, colon);
  const std::string_view argument = colon == std::string_view::npos ? std::string_view() : value.substr(colon + 1);
  const bool has_argument = colon != std::string_view::npos;
  if (name == "kill" && !has_argument) {
    rule.kind = Kind::kKill;
  } else if (name == "stop" && !has_argument) {
    rule.kind = Kind::kStop;
  } else if (name == "throw" && !has_argument) {
    rule.kind = Kind::kThrow;
  } else if (name == "delay" && has_argument) {
    rule.kind = Kind::kDelay;
    rule.argument = parse_number<int>(text, "delay", argument);
  } else if (name == "errno" && has_argument) {
    rule.kind = Kind::kErrno;
    rule.argument = errno_named(text, argument);
  } else {
    fail(text, fmt::format("unknown kind \"{}\"", value));
  }
}

std::unique_ptr<Rule> parse_rule(std::string_view text) {
  auto rule = std::make_unique<Rule>();
  bool has_kind = false;
  std::vector<std::string_view> seen;
  for (const std::string_view item : split(text, ',')) {
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) fail(text, fmt::format("\"{}\" is not key=value", item));
    const std::string_view key = trim(item.substr(0, equals)), value = trim(item.substr(equals + 1));
    for (const std::string_view other : seen) {
      if (other == key) fail(text, fmt::format("{} is given twice", key));
    }
    seen.push_back(key);
    if (key == "rank") {
      rule->rank = parse_number<int>(text, key, value);
    } else if (key == "step") {
      rule->step = parse_number<uint64_t>(text, key, value);
    } else if (key == "count") {
      rule->count = parse_number<uint64_t>(text, key, value);
      if (*rule->count == 0) fail(text, "count = 0 never happens; the first passage is 1");
    } else if (key == "point") {
      rule->point = std::string(value);
    } else if (key == "kind") {
      parse_kind(text, value, *rule);
      has_kind = true;
    } else {
      const auto meant = nearest(key, kKeys);
      fail(text, fmt::format("unknown key \"{}\"{}", key, meant ? fmt::format("; did you mean {}?", *meant) : ""));
    }
  }
  if (rule->point.empty()) fail(text, "point is missing");
  if (!has_kind) fail(text, "kind is missing");
  return rule;
}

Rules parse_rules(std::string_view text) {
  Rules rules;
  for (const std::string_view part : split(text, ';')) {
    if (!part.empty()) rules.push_back(parse_rule(part));
  }
  return rules;
}

const char* fault_variable() {
  const char* const text = std::getenv("TRIREME_FAULT");
  return text != nullptr && *text != '\0' ? text : nullptr;
}

std::mutex g_mutex;                    // guards g_rules
std::shared_ptr<const Rules> g_rules;  // null until read
std::atomic<int> g_fault_rank{-1};
std::atomic<uint64_t> g_step{0};
thread_local std::optional<int> t_fault_rank;
thread_local std::optional<uint64_t> t_step;

std::shared_ptr<const Rules> rules() {
  const std::lock_guard lock(g_mutex);
  if (!g_rules) {
    const char* const text = fault_variable();
    g_rules = std::make_shared<const Rules>(parse_rules(text != nullptr ? text : ""));
  }
  return g_rules;
}

}  // namespace

namespace fault_detail {

std::atomic<bool> armed{fault_variable() != nullptr};

int pass(std::string_view point) {
  const int rank = t_fault_rank ? *t_fault_rank : g_fault_rank.load(std::memory_order_relaxed);
  const uint64_t step = t_step ? *t_step : g_step.load(std::memory_order_relaxed);
  int pretended = 0;
  const std::shared_ptr<const Rules> all = rules();
  for (const auto& rule : *all) {
    if (rule->point != point || (rule->rank && *rule->rank != rank) || (rule->step && *rule->step != step)) continue;
    const uint64_t passage = rule->passages.fetch_add(1, std::memory_order_relaxed) + 1;
    if (rule->count && *rule->count != passage) continue;
    switch (rule->kind) {
      case Kind::kKill:
        ::raise(SIGKILL);
        break;
      case Kind::kStop:
        ::raise(SIGSTOP);
        break;
      case Kind::kThrow:
        throw Error(fmt::format("fault injected at {} (rank {}, step {})", point, rank, step));
      case Kind::kDelay:
        std::this_thread::sleep_for(std::chrono::milliseconds(rule->argument));
        break;
      case Kind::kErrno:
        pretended = rule->argument;
        break;
    }
  }
  return pretended;
}

void throw_errno(std::string_view point, int error_number) {
  throw SystemError(fmt::format("pass {} (fault injected)", point), error_number);
}

}  // namespace fault_detail

void set_fault_rank(int rank) {
  t_fault_rank = rank;
  g_fault_rank.store(rank, std::memory_order_relaxed);
  if (faults_armed()) rules();
}

void set_fault_step(uint64_t step) {
  t_step = step;
  g_step.store(step, std::memory_order_relaxed);
}

void set_faults(std::string_view text) {
  auto parsed = std::make_shared<const Rules>(parse_rules(text));
  const std::lock_guard lock(g_mutex);
  fault_detail::armed.store(!parsed->empty(), std::memory_order_relaxed);
  g_rules = std::move(parsed);
}

}  // namespace trireme
