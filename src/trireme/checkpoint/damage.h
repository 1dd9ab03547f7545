// Where a checkpoint is damaged, as a value and as an error.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/error.h"

namespace trireme {

struct Damage {
  std::string file;    ///< inside the checkpoint
  uint64_t byte = 0;   ///< of the file: where the MiB begins whose checksum is wrong, or where the file ends too early
  std::string tensor;  ///< the first that lies there; empty where none does
  int more_tensors = 0;  ///< others that lie there, too
  std::string problem;   ///< "wrong checksum", "missing", …

  /// "weights-00002-of-00004.safetensors, byte 71,303,168 (layers.9.qkv): wrong checksum"
  std::string text() const;
  /// "weights-00002-of-00004.safetensors, byte 71,303,168 (layers.9.qkv)"
  std::string place() const;
};

/// Bytes that were read are not those that were written. They have not been given to anybody.
class DamagedError : public Error {
 public:
  DamagedError(const std::string& checkpoint, Damage damage);
  const Damage& damage() const { return damage_; }

 private:
  Damage damage_;
};

}  // namespace trireme
