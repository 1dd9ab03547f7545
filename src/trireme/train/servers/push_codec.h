// Compressed gradients on their way to parameter servers: workers pack them, servers unpack them.
//
// Each piece of a key is packed separately, as one message of compress/message.h. The residual of a method stays with
// the worker, under the name of the parameter, so residuals of a checkpoint can be continued with or without servers.
//
// Owner: ServerAggregation. Threads: the one that pushes; servers unpack with a copy of the settings.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/compress/message.h"
#include "trireme/server/keys.h"
#include "trireme/server/settings.h"

namespace trireme {

class PushCodec {
 public:
  static constexpr uint32_t kId = 1;

  /// For replica `replica` of `num_replicas`. add() throws UsageError for a method that needs more than one message.
  PushCodec(const CompressionOptions& options, int replica, int num_replicas)
      : options_(options), replica_(replica), num_replicas_(num_replicas) {}

  /// Declares that this worker will push key `key`: the summed gradients of `tensors`; residuals are saved under the
  /// first.
  void add(const server::KeyTable& table, size_t key, std::vector<std::string> tensors);
  /// The codec for servers and for this worker. Clock 0 is step `first_step`.
  server::Codec codec(uint64_t first_step);

  /// The gradient not sent so far: [Note: Residuals].
  StatePieces save() const;
  void load(const std::vector<StatePieces>& by_replica);

 private:
  struct Packer {
    std::vector<std::string> tensors;
    std::string part;  ///< the encoder's name for its part of the first tensor
    size_t first = 0, count = 0, total = 0;
    std::unique_ptr<MessageEncoder> encoder;
  };

  const CompressionOptions options_;
  const int replica_, num_replicas_;
  std::map<std::pair<std::string, size_t>, Packer> packers_;  ///< keyed by key name and first element
  std::vector<float> values_;                                 ///< scratch, since encoders may modify their input
};

}  // namespace trireme
