// A gradient as one message, and its addition where it arrives: all that a push to a parameter server needs, and what
// ranks gather from each other by the sparse methods.
//
// Owner of an encoder: the sender, one for each group. Threads: one at a time. Nothing blocks. Methods whose sum takes
// more than one message (powersgd, onebit_adam) are refused with UsageError; bytes from outside that do not fit, with
// Error.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trireme/compress/group_layout.h"
#include "trireme/compress/method.h"
#include "trireme/compress/state.h"

namespace trireme {

class MessageEncoder {
 public:
  virtual ~MessageEncoder() = default;
  /// May change `values`.
  virtual void encode(std::span<float> values, uint64_t step, std::vector<uint8_t>& out) = 0;

  // As of an Exchange.
  virtual void save(StatePieces&) const {}
  virtual void load(std::span<const StatePieces>) {}
  virtual void rescale(float) {}
};

/// `rank` of `size` senders; `fraction_of_gradient`: how much of the whole gradient's elements this group has, and so
/// of the norm that dgc allows.
std::unique_ptr<MessageEncoder> make_message_encoder(const CompressionOptions& options, GroupLayout layout, int rank,
                                                     int size, double fraction_of_gradient = 1);

/// out += the message that was sent at this step with the same options.
void add_message(const CompressionOptions& options, uint64_t step, std::span<const uint8_t> message,
                 std::span<float> out);

}  // namespace trireme
