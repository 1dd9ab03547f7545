// Compressed gradients on their way to parameter servers: what a worker packs and keeps, what a server unpacks.
//
// Every piece of a key is packed by itself, as one message of compress/message.h. What a method leaves out stays with
// the worker, under the name of the parameter: a checkpoint's residuals go on with servers and without.
//
// Owner: the trainer's ServerAggregation. Threads: the one that pushes; servers unpack with a copy of the settings.
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

  /// For replica `replica` of `num_replicas`. Throws UsageError for a method that takes more than one message.
  PushCodec(const CompressionOptions& options, int replica, int num_replicas)
      : options_(options), replica_(replica), num_replicas_(num_replicas) {}

  /// This worker will push that key, which has the gradients of `tensors`, summed; the first names what is saved.
  void add(const server::KeyTable& table, size_t key, std::vector<std::string> tensors);
  /// For servers and for this worker. Clock 0 is step `first_step`.
  server::Codec codec(uint64_t first_step);

  /// What was left out so far: [Note: Residuals].
  StatePieces save() const;
  void load(const std::vector<StatePieces>& by_replica);

 private:
  struct Packer {
    std::vector<std::string> tensors;
    std::string part;  ///< what the encoder calls its part of the first tensor
    size_t first = 0, count = 0, total = 0;
    std::unique_ptr<MessageEncoder> encoder;
  };

  const CompressionOptions options_;
  const int replica_, num_replicas_;
  std::map<std::pair<std::string, size_t>, Packer> packers_;  ///< by key and first element
  std::vector<float> values_;                                 ///< encoders may change what they are given
};

}  // namespace trireme
