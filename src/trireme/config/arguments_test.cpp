// The workers that a layout needs: as the check of the layout counts them.
#include "trireme/config/arguments.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/config/check.h"
#include "trireme/config/resolve.h"

namespace trireme {
namespace {

TEST(ConfigArguments, CountTheWorkersThatTheCheckAsksFor) {
  const ConfigArguments arguments;
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--parallel.dp=2"},
           {"--parallel.dp=2", "--parallel.tp=2", "--parallel.pp=2"},
           {"--parallel.dp=4", "--parallel.ep=4"},  // experts are spread over the replicas
           {"--parallel.dp=2", "--parallel.cp=2"},
           {"--parallel.stages=2x1,1x2"}}) {
    ConfigSources sources;
    sources.arguments = words;
    const Config config = resolve(sources);
    const int workers = arguments.num_workers(config);
    EXPECT_NO_THROW(check_sizes(config, workers)) << words.back() << ": " << workers;
  }
}

TEST(ConfigArguments, RefuseWhatIsNoNumberOfWorkers) {
  for (const char* word : {"--parallel.tp=0", "--parallel.pp=-1", "--parallel.ep=0"}) {
    ConfigSources sources;
    sources.arguments = {word};
    EXPECT_THROW(ConfigArguments().num_workers(resolve(sources)), UsageError) << word;
  }
}

TEST(ConfigArguments, TakeAFileAndKeysAndNothingElse) {
  const std::vector<std::string> flags = {"--nproc", "--json"};
  ConfigArguments arguments;
  arguments.take(std::vector<std::string>{"my.toml", "--train.steps", "5", "--parallel.sequence", "--optimizer.lr=1"});
  arguments.model = "gpt2-tiny";
  EXPECT_EQ(arguments.sources().file, "my.toml");
  EXPECT_EQ(arguments.sources().arguments, (std::vector<std::string>{"--model", "gpt2-tiny", "--train.steps", "5",
                                                                     "--parallel.sequence", "--optimizer.lr=1"}));
  const auto mistake = [&](std::vector<std::string> words) -> std::string {
    try {
      ConfigArguments(arguments).take(words, flags);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(mistake({"--nporc=2"}).find("did you mean --nproc?"), std::string::npos);
  EXPECT_NE(mistake({"other.toml"}).find("two configs: my.toml and other.toml"), std::string::npos);
  EXPECT_NE(mistake({"my.txt"}).find("--data.path my.txt"), std::string::npos);
  EXPECT_NE(mistake({"--data.path", "a.txt", "b.txt"}).find("in quotes"), std::string::npos);
}

}  // namespace
}  // namespace trireme
