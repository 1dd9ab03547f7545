// The workers that a layout needs: as the check of the layout counts them.
#include "trireme/cli/config_arguments.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/config/check.h"
#include "trireme/config/resolve.h"

namespace trireme::cli {
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

}  // namespace
}  // namespace trireme::cli
