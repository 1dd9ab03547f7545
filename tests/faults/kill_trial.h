// One `kill -9` of a rank at a random moment, and what must follow.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "support/paths.h"
#include "support/process_group.h"

namespace trireme {

/// The line of a rank that caught a CommError.
struct Caught {
  Clock::time_point at;
  int culprit = -1;
  std::string message;
};

inline std::optional<Caught> caught_in(const std::string& output) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("caught ")) continue;
    std::istringstream words(line.substr(7));
    int64_t ns = 0;
    Caught caught;
    words >> ns >> caught.culprit;
    std::getline(words, caught.message);
    caught.at = Clock::time_point(std::chrono::nanoseconds(ns));
    return caught;
  }
  return std::nullopt;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Nothing of ours may be left with a name.
inline void expect_no_leftovers(const RankProcesses& ranks) {
  EXPECT_EQ(ranks.leftovers(), std::vector<std::string>());
  for (const std::string& name : shared_memory_names()) EXPECT_FALSE(name.starts_with("trireme")) << name;
}

inline std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

/// Kills `num_victims` of 3 or 4 ranks after `delay` of work. Returns the seconds until the last survivor had thrown.
inline double kill_trial(uint64_t seed, Wires wires, int num_victims = 1) {
  using namespace std::chrono_literals;
  std::mt19937_64 random(seed * 77 + 5);
  RankProcesses::Options options;
  options.size = num_victims > 1 ? 4 : 3 + static_cast<int>(random() % 2);
  options.wires = wires;
  std::vector<std::string> argv{program_path("loop_program")};
  if (random() % 2 == 0) argv.push_back("split=1");
  RankProcesses ranks(argv, options);
  if (!ranks.wait_for(random() % 4 == 0 ? "joined" : "working", 30s)) return 0;
  std::set<int> victims;
  while (static_cast<int>(victims.size()) < num_victims)
    victims.insert(static_cast<int>(random() % static_cast<uint64_t>(options.size)));
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));

  const Clock::time_point killed = Clock::now();
  for (const int victim : victims) ranks[victim].signal(SIGKILL);
  const std::vector<int> codes = ranks.wait(10s);
  double slowest = 0;
  for (int rank = 0; rank < options.size; ++rank) {
    const std::string output = ranks[rank].output();
    if (victims.contains(rank)) {
      EXPECT_EQ(codes[static_cast<size_t>(rank)], 128 + SIGKILL);
      continue;
    }
    EXPECT_EQ(codes[static_cast<size_t>(rank)], 3) << "seed " << seed << "\n" << ranks.outputs();
    const auto caught = caught_in(output);
    if (!caught) {
      ADD_FAILURE() << "seed " << seed << ": rank " << rank << " says nothing of a failure\n" << ranks.outputs();
      continue;
    }
    slowest = std::max(slowest, std::chrono::duration<double>(caught->at - killed).count());
    EXPECT_TRUE(victims.contains(caught->culprit)) << "seed " << seed << "\n" << ranks.outputs();
    if (!victims.contains(caught->culprit)) continue;
    EXPECT_TRUE(contains(caught->message, fmt::format("rank {} (", caught->culprit)) &&
                contains(caught->message, host_name()) &&
                contains(caught->message, fmt::format("pid {}", ranks[caught->culprit].pid())))
        << "seed " << seed << ": " << caught->message;
  }
  EXPECT_LT(slowest, 1.0) << "seed " << seed << "\n" << ranks.outputs();
  expect_no_leftovers(ranks);
  return slowest;
}

}  // namespace trireme
