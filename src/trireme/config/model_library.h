// What a shared library says of the models that it gives: their names, and their keys in [model.NAME].
//
//   --model.library ./libmine.so --model.kind mine --model.mine.width 32
//
// Programs without libtorch check and list these keys like all others, but cannot hold the library: a process of its
// own opens it, once, and what it says is kept beside it, as libmine.so.json, until the library changes. The models
// themselves are made in models/model_library.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace trireme {

using Value = std::variant<int64_t, double, bool, std::string>;

/// A key of a library's model. The type of its default is its type.
struct LibraryKey {
  std::string name;
  Value value;          ///< the default
  std::string meaning;  ///< one line
  double least = -1e15, most = 1e15;
  std::vector<std::string> names = {};  ///< the only texts; empty: any
};

/// What the samples of a model are, where its library does not open them itself.
enum class SampleKind : uint8_t {
  kOwn,     ///< the library opens them
  kImages,  ///< with labels: model.channels, model.image and model.classes say of which size
  kTokens,  ///< with the tokens that follow: model.seq and model.vocab
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
  /// Throws UsageError that lists the names.
  const LibraryModelKeys& find(std::string_view name) const;
};

/// Blocks while the library is opened, a minute at most, and it must not have been read before; at most once a process
/// for each version of the file. Throws UsageError for a file that is no such library, was built for another Trireme,
/// or throws while it is opened. Threads: all.
std::shared_ptr<const ModelLibraryKeys> read_model_library(const std::string& path);

/// What a library must match, beside libtorch's version: "Trireme 0.2.0".
std::string library_stamp();

/// As the library says it, in JSON. Throws UsageError for names that cannot be keys, or ranges without the default.
std::string describe(const std::vector<LibraryModelKeys>& models);

}  // namespace trireme
