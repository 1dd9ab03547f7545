// The way in: from the section [data] of a configuration to samples for training and samples held out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/config/config.h"
#include "trireme/data/dataset.h"
#include "trireme/data/text/bpe.h"
#include "trireme/data/text/generated_text.h"

namespace trireme {

struct DataOptions {
  std::string path;  ///< a file or a folder; empty: generated
  DataKind kind = DataKind::kAuto;
  std::string tokenizer;  ///< for text: empty for bytes, else a file or folder as Bpe::load takes it
  FileCache cache = FileCache::kMap;
  double held_out = 0.05;            ///< fraction kept from training, where there is no file for it
  HoldOut split = HoldOut::kRandom;  ///< where it comes from; drawn by `seed`
  int64_t seq = 128;                 ///< language: tokens of a sample
  int64_t vocab = 0;                 ///< language: ids must be below it; images: labels must be. 0: take what is there
  uint64_t seed = 1;                 ///< of generated data, and of what is held out
  /// Images: what the model expects, 0 for anything. With kGenerated, channels > 0 asks for images.
  int64_t channels = 0, height = 0, width = 0;
  GeneratedTextOptions generated;   ///< its seed is replaced by `seed`
  int64_t generated_images = 8192;  ///< for training; an eighth as many more are held out
};

struct OpenedData {
  std::shared_ptr<const Dataset> train = {};
  /// Null only where options.held_out is 0 and the format has no test files.
  std::shared_ptr<const Dataset> held_out = {};
  int64_t vocab = 0;                          ///< language: 1 + the largest id that can occur; images: classes
  std::shared_ptr<const Bpe> tokenizer = {};  ///< null: tokens are bytes, or came as a token file
  bool is_generated_text = false;             ///< then held_out_sums(generated, …) has questions
  GeneratedTextOptions generated = {};        ///< as used
  std::string description = {};               ///< one line for people
};

/// Blocks while files are read or checked. Throws SystemError where the system refuses, UsageError for data that cannot
/// be used: both name the file, and the place, the value and the fix where there are such.
OpenedData open_data(const DataOptions& options);

/// What [data], [model] and the seed of a configuration say.
DataOptions data_options_of(const Config& config);

}  // namespace trireme
