// Which configurations parameter servers cannot train.
#include "trireme/config/check.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

void check_rows(const Config& config) {
  const auto refuse = [&](bool wrong, std::string_view problem, std::string_view other, const std::string& cure) {
    if (wrong) contradict(config, "server.rows", problem, other, cure);
  };
  if (!config.server.rows) return;
  refuse(!config.model.is_language(), "is for the embedding of gpt2 and llama, not for", "model.kind",
         "set server.rows = false");
  refuse(config.model.is_language() && config.model.tied, "needs gradients of a few rows, and all rows have some with",
         "model.tied", "set model.tied = false");
  refuse(config.parallel.tp > 1, "needs the rows of a token in one place, and they are spread over", "parallel.tp",
         "set parallel.tp = 1, or server.rows = false");
}

}  // namespace

void check_servers(const Config& config) {
  if (config.parallel.aggregation != "server") return;
  const auto refuse = [&](bool wrong, std::string_view problem, std::string_view other, const std::string& cure) {
    if (wrong) contradict(config, "parallel.aggregation", problem, other, cure);
  };
  refuse(config.parallel.zero > 0,
         "has optimizer state and sums on the servers, and workers have nothing to share with", "parallel.zero",
         "set parallel.zero = 0: server.count says over how many the state is spread");
  refuse(config.parallel.is_asynchronous(), "updates once a step, when all micro-batches are summed, not as",
         "parallel.schedule", "take a synchronous schedule, such as 1f1b; server.mode lets replicas go apart");
  refuse(config.compression.method == "powersgd",
         "gets one message from a worker for each sum, and two one after the other are needed by", "compression.method",
         "take one of the other methods, such as topk");
  refuse(config.compression.method == "onebit_adam",
         "updates from gradients, but what travels is momentum that workers keep, with", "compression.method",
         "take compression.method = \"sign\"");
  refuse(config.precision.matmul == "fp8",
         "sends weights layer by layer while a step computes, and 8-bit copies of all are made before it with",
         "precision.matmul", "set precision.matmul = \"compute\"");
  refuse(config.precision.gradients == "compute", "works on gradients in float32, not with", "precision.gradients",
         "set precision.gradients = \"float32\"; compression.method = \"bfloat16\" halves what travels");
  if (config.server.replicate && config.server.count < 2) {
    contradict(config, "server.replicate", "needs a second server, but", "server.count", "set server.count = 2");
  }
  check_rows(config);
}

}  // namespace trireme
