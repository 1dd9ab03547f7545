// What cannot be is refused with a sentence: settings, keys, lengths, strangers.
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/server/server_test_util.h"

namespace trireme::server {
namespace {

using namespace testing;

void expect_error(const std::function<void()>& body, const std::string& part) {
  try {
    body();
    FAIL() << "no error, expected: " << part;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(BadInput, Settings) {
  const auto with = [](const std::function<void(Settings&)>& change, int servers, const std::string& part) {
    Settings settings;
    settings.num_workers = 3;
    change(settings);
    expect_error([&] { check(settings, servers); }, part);
  };
  with([](Settings& s) { s.mode = Mode::kBounded, s.staleness_bound = -1; }, 1,
       "the bound of staleness is -1, below 0");
  with([](Settings& s) { s.staleness_bound = 2; }, 1, "no meaning in the synchronous mode");
  with([](Settings& s) { s.mode = Mode::kAsynchronous, s.commits = true; }, 1, "no rounds whose norm");
  with([](Settings& s) { s.replicate = true; }, 1, "cannot be its own replica");
  with([](Settings& s) { s.num_workers = 0; }, 1, "0 workers");
  with([](Settings& s) { s.num_leaves = -1; }, 1, "a tree of sums with -1 leaves");
  with([](Settings& s) { s.piece_elements = 1000; }, 1, "pieces of 1000 elements");
  with([](Settings&) {}, 0, "0 parameter servers");
}

TEST(BadInput, Keys) {
  expect_error([] { KeyTable({}, 4096, 1); }, "without keys");
  expect_error([] { KeyTable({{"a", 5, 0, true}, {"a", 6, 0, true}}, 4096, 1); }, "two keys are called \"a\"");
  expect_error([] { KeyTable({{"a", 0, 0, true}}, 4096, 1); }, "no elements");
  expect_error([] { KeyTable({{"a", 10, 3, true}}, 4096, 1); }, "not whole rows of 3");
  expect_error([] { KeyTable({{"a", 10000, 5000, true}}, 4096, 1); }, "more than a piece");
  expect_error(
      [] {
        KeyTable({{"a", 10, 0, true}, {"b", 10, 0, true}}, 4096, 3);
      },
      "3 servers for 2 keys in 2 pieces of at most 16 KiB: a server would have nothing");
}

TEST(BadInput, CallsOfAWorker) {
  Group group;
  group.settings.num_workers = 2;
  group.settings.num_leaves = 3;
  group.keys = {{"weight", 10, 0, true}, {"table", 20, 5, true}};
  group.start(1);
  Worker worker(group.worker_options(1));
  std::vector<float> ten(10), nine(9);
  const std::vector<int64_t> rows = {0, 4};
  expect_error([&] { worker.pull("weihgt", ten); }, "did you mean \"weight\"");
  expect_error([&] { worker.pull("weight", nine); }, "9 elements, but key \"weight\" has 10");
  expect_error([&] { worker.push("weight", nine); }, "9 elements, but key \"weight\" has 10");
  expect_error([&] { worker.push("weight", ten); }, "leaves 1 to 3 of 3 are no branch");
  expect_error([&] { worker.push("table", std::vector<float>(20)); }, "push them with push_rows()");
  expect_error([&] { worker.pull_rows("weight", rows, ten); }, "declared without rows");
  expect_error([&] { worker.pull_rows("table", rows, ten); }, "has rows 0 to 3, not 4");
  expect_error([&] { worker.push_rows("table", rows, nine); }, "9 elements for 2 rows of 5");
  expect_error([&] { worker.commit(0, 1, 1); }, "without Settings::commits");
  expect_error([&] { worker.squares(0); }, "keep no squares");
  expect_error([&] { worker.init("weight", ten, Part::kSecond).wait(); }, "keeps no part 2");
  expect_error([&] { worker.pull("weight", ten).wait(1s); }, "nobody has given \"weight\" its first weights");
  worker.init("weight", ten).wait();
  worker.pull("weight", ten).wait();
  worker.close();
  expect_error([&] { worker.pull("weight", ten); }, "has left");
}

TEST(BadInput, WorkersThatDisagree) {
  Group group;
  group.settings.num_workers = 2;
  group.keys = {{"w", 10, 0, true}, {"v", 10, 0, true}};
  group.start(1);
  Worker worker(group.worker_options(0));
  WorkerOptions other = group.worker_options(1);
  other.settings.rule.momentum = 0.5;
  expect_error([&] { Worker w(other); }, "other keys or settings");
  other = group.worker_options(1);
  other.keys[0].count = 11;
  expect_error([&] { Worker w(other); }, "other keys or settings");
  other = group.worker_options(1);
  other.settings.replicate = true;
  other.servers.push_back(other.servers[0]);
  expect_error([&] { Worker w(other); }, "refuse");
  other = group.worker_options(0);
  other.timeout = 1s;
  expect_error([&] { Worker w(other); }, "worker 0 is already there");
  other = group.worker_options(1);
  other.credentials.token = "another token";
  expect_error([&] { Worker w(other); }, "refused rank 1: wrong token");
}

TEST(BadInput, ServersWithoutATokenStayAtHome) {
  ServerOptions options;
  options.bind = "0.0.0.0";
  expect_error([&] { Server server(options); }, "needs a token");
}

}  // namespace
}  // namespace trireme::server
