// Event files that TensorBoard reads: curves and texts, without its library.
//
//   file    records, one after the other
//   record  length (8 bytes, little endian) | masked CRC32C of those 8 | data | masked CRC32C of data
//   data    an Event in the encoding of Protocol Buffers; the first says version "brain.Event:2"
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/observe/append_file.h"

namespace trireme {

struct TensorBoardOptions {
  /// Of a run that goes on: what earlier files say of later steps is hidden.
  std::optional<int64_t> resumed_step;
  // For tests; by default the truth.
  std::function<std::chrono::system_clock::time_point()> now = std::chrono::system_clock::now;
};

/// Writes one file of its own, FOLDER/events.out.tfevents.TIME.HOST.PID. Worker 0 holds it. Threads: all.
/// Each call is one write(): TensorBoard sees it at once, and a killed writer leaves whole records.
class TensorBoardWriter {
 public:
  /// Makes the folder where it is missing. Throws SystemError.
  explicit TensorBoardWriter(const std::filesystem::path& folder, TensorBoardOptions options = {});

  /// Points of several curves at one step. A tag like "loss/training" puts curves of one group together.
  /// Throws SystemError, with the file as it was.
  void add_scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values);
  /// Shown by the text tab as Markdown. Throws like add_scalars.
  void add_text(std::string_view tag, std::string_view markdown, int64_t step = 0);
  /// The same with every line as it is: a config.
  void add_preformatted(std::string_view tag, std::string_view text, int64_t step = 0);

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  void append(int64_t step, std::string_view fields);

  TensorBoardOptions options_;
  std::mutex mutex_;
  AppendFile file_;
};

/// A CRC that is stored beside what it is of: changed, so that the CRC of data that holds CRCs stays a good one.
uint32_t masked_crc32c(std::string_view data);
/// One record of the file, around `data`.
std::string tensorboard_record(std::string_view data);

}  // namespace trireme
