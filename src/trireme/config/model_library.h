// The models that a shared library provides: their names, and their keys in [model.NAME].
//
//   --model.library ./libmine.so --model.kind mine --model.mine.width 32
//
// Programs without libtorch check and list these keys like all others, but cannot load the library. A child process
// opens it once, and its answer is cached next to it, as libmine.so.json, until the library changes. The models
// themselves are created in models/model_library.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace trireme {

using Value = std::variant<int64_t, double, bool, std::string>;

/// A key of a library's model. Its type is the type of its default.
struct LibraryKey {
  std::string name;
  Value value;                          ///< the default
  std::string meaning;                  ///< one line
  double least = -1e15, most = 1e15;    ///< range of numbers
  std::vector<std::string> names = {};  ///< allowed texts; empty: any
};

/// The kind of samples that a model takes, if its library does not open the data itself.
enum class SampleKind : uint8_t {
  kOwn,     ///< the library opens the data
  kImages,  ///< images with labels; sizes: model.channels, model.image, model.classes
  kTokens,  ///< tokens and the tokens that follow them; sizes: model.seq, model.vocab
};

struct LibraryModelKeys {
  std::string name, meaning;
  SampleKind samples = SampleKind::kOwn;
  std::vector<LibraryKey> keys = {};
};

/// Immutable. Threads: all.
struct ModelLibraryKeys {
  std::string path;
  std::vector<LibraryModelKeys> models;
  /// Throws UsageError that lists the names if there is none.
  const LibraryModelKeys& find(std::string_view name) const;
};

/// Reads the cached answer, or opens the library in a child process, which blocks for at most a minute. Remembers the
/// result for each version of the file, so that later calls return at once. Throws UsageError for a file that is
/// missing or no such library, was built for another Trireme, or fails while it is opened. Threads: all.
std::shared_ptr<const ModelLibraryKeys> read_model_library(const std::string& path);

/// The version that a library must be built for, apart from libtorch's: "Trireme 0.2.0".
std::string library_stamp();

/// The library's answer, in JSON. Throws UsageError for invalid names, and for defaults that are not allowed values.
std::string describe(const std::vector<LibraryModelKeys>& models);

}  // namespace trireme
