#include "trireme/data/open_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/data/cifar.h"
#include "trireme/data/file_bytes.h"
#include "trireme/data/generated_images.h"
#include "trireme/data/idx.h"
#include "trireme/data/split.h"
#include "trireme/data/text/text_files.h"
#include "trireme/data/text/token_file.h"
#include "trireme/data/tokens.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

void check(const DataOptions& options) {
  if (!(options.held_out >= 0 && options.held_out < 1)) {
    throw UsageError(fmt::format("data.held_out = {} must be from 0 to below 1", options.held_out));
  }
  if (options.path.empty() && (options.kind == DataKind::kText || options.kind == DataKind::kTokens)) {
    throw UsageError(fmt::format("data.kind = \"{}\" needs data.path", name_of(options.kind)),
                     "name a file or a folder");
  }
}

bool is_bin(const fs::path& path) { return path.extension() == ".bin"; }

/// "val", "valid", "validation" or "test" as a word of the name, as nanoGPT and llm.c call what is held out.
bool is_held_out_name(const fs::path& path) {
  std::string stem = to_lower(path.stem().string());
  std::replace_if(
      stem.begin(), stem.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  for (const std::string_view part : split(stem, '_')) {
    if (part == "val" || part == "valid" || part == "validation" || part == "test") return true;
  }
  return false;
}

DataKind guess_kind(const DataOptions& options) {
  if (options.path.empty()) return options.channels > 0 ? DataKind::kImages : DataKind::kGenerated;
  std::error_code ignored;
  const bool is_several = !fs::exists(options.path, ignored);  // a pattern, a list, or a mistake that is told
  if (is_several || fs::is_directory(options.path, ignored)) {
    if (has_idx(options.path) || has_cifar(options.path)) return DataKind::kImages;
    const auto files = files_under(options.path);
    const auto num_bins = std::count_if(files.begin(), files.end(), is_bin);
    if (num_bins == 0) return DataKind::kText;
    if (num_bins == static_cast<int64_t>(files.size())) return DataKind::kTokens;
    const auto other = std::find_if_not(files.begin(), files.end(), is_bin);
    throw UsageError(fmt::format("{} holds token files (*.bin) and others, such as {}", options.path, other->string()),
                     "say what is meant: data.kind = \"tokens\" (then only *.bin are read) or \"text\"");
  }
  return is_bin(options.path) || looks_like_llmc(options.path) ? DataKind::kTokens : DataKind::kText;
}

void need_vocab(int64_t found, const DataOptions& options, const std::string& what) {
  if (options.vocab == 0 || found <= options.vocab) return;
  throw UsageError(fmt::format("{} has {} ids, but model.vocab = {}", what, format_count(found), options.vocab),
                   fmt::format("set model.vocab = {}", found));
}

HeldOutWindows held_out_windows(const DataOptions& options) { return {options.held_out, options.split, options.seed}; }

std::string sizes(const OpenedData& data) {
  const int64_t held_out = data.held_out ? data.held_out->size() : 0;
  return fmt::format("{} samples, {} held out", format_count(data.train->size()), format_count(held_out));
}

OpenedData open_generated_text(const DataOptions& options) {
  OpenedData data;
  data.is_generated_text = true;
  data.generated = options.generated;
  data.generated.seed = options.seed;
  GeneratedText text = generate_text(data.generated);
  data.train = split_tokens({TokenPiece::of_text(std::move(text.train))}, options.seq, {}, "generated text").train;
  data.held_out =
      split_tokens({TokenPiece::of_text(std::move(text.held_out))}, options.seq, {}, "held-out generated text").train;
  data.vocab = 256;
  need_vocab(data.vocab, options, "generated text");
  data.description = fmt::format("generated text (sums and a small grammar, seed {}) · {}", options.seed, sizes(data));
  return data;
}

OpenedData open_text_data(const DataOptions& options) {
  OpenedData data;
  if (!options.tokenizer.empty()) data.tokenizer = std::make_shared<const Bpe>(Bpe::load(options.tokenizer));
  data.vocab = data.tokenizer ? data.tokenizer->vocab_size() : 256;
  need_vocab(data.vocab, options, data.tokenizer ? "the tokenizer " + options.tokenizer : "text as bytes");
  TextFiles text = open_text(options.path, options.cache, data.tokenizer.get());
  SplitTokens split = split_tokens(std::move(text.pieces), options.seq, held_out_windows(options), options.path);
  data.train = std::move(split.train);
  data.held_out = std::move(split.held_out);
  data.description = fmt::format(
      "text {} ({}{}, {}) · {}", options.path, text.num_files > 1 ? fmt::format("{} files, ", text.num_files) : "",
      format_bytes(static_cast<uint64_t>(text.num_bytes)),
      data.tokenizer ? fmt::format("BPE, {} ids", format_count(data.vocab)) : "byte by byte", sizes(data));
  return data;
}

OpenedData open_token_data(const DataOptions& options) {
  std::error_code ignored;
  std::vector<fs::path> files = files_under(options.path);
  if (fs::is_directory(options.path, ignored)) {
    std::erase_if(files, [](const fs::path& path) { return !is_bin(path); });
    if (files.empty())
      throw UsageError(fmt::format("{} holds no token files (*.bin)", options.path), "check data.path");
  }
  std::vector<TokenPiece> train, held_out;
  int64_t largest = 0, count = 0;
  for (const fs::path& path : files) {
    TokenFile file = open_token_file(path, options.cache, options.vocab);
    largest = std::max(largest, file.largest);
    count += file.tokens.count;
    (files.size() > 1 && is_held_out_name(path) ? held_out : train).push_back(std::move(file.tokens));
  }
  OpenedData data;
  data.vocab = largest + 1;
  if (held_out.empty()) {
    SplitTokens split = split_tokens(std::move(train), options.seq, held_out_windows(options), options.path);
    data.train = std::move(split.train);
    data.held_out = std::move(split.held_out);
  } else {
    data.train = split_tokens(std::move(train), options.seq, {}, options.path + " (training files)").train;
    data.held_out = split_tokens(std::move(held_out), options.seq, {}, options.path + " (held-out files)").train;
  }
  data.description = fmt::format("tokens {} ({}{} tokens, all checked, largest id {}) · {}", options.path,
                                 files.size() > 1 ? fmt::format("{} files, ", files.size()) : "", format_count(count),
                                 largest, sizes(data));
  return data;
}

ImageFiles open_image_files(const DataOptions& options) {
  if (options.path.empty()) {
    GeneratedImageOptions made;
    made.seed = options.seed;
    made.num_train = options.generated_images;
    made.num_held_out = std::max<int64_t>(10, options.generated_images / 8);
    if (options.channels > 0) made.channels = options.channels;
    if (options.height > 0) made.height = options.height;
    if (options.width > 0) made.width = options.width;
    return generate_images(made);
  }
  const FileCache cache = options.cache;
  if (has_idx(options.path)) return open_idx(options.path, cache, options.vocab > 0 ? options.vocab : 10);
  if (has_cifar(options.path)) return open_cifar(options.path, cache);
  throw UsageError(
      fmt::format("{} holds no images: neither train-images-idx3-ubyte nor data_batch_*.bin", options.path),
      "give the folder with the unpacked files of MNIST (IDX) or CIFAR-10 (binary)");
}

OpenedData open_image_data(const DataOptions& options) {
  ImageFiles files = open_image_files(options);
  const auto agree = [&](const char* key, int64_t wanted, int64_t found) {
    if (wanted == 0 || wanted == found) return;
    throw UsageError(fmt::format("{} images have {} = {}, but the model expects {}", files.format, key, found, wanted),
                     fmt::format("set model.{} = {}", std::string_view(key) == "channels" ? key : "image", found));
  };
  agree("channels", options.channels, files.shape.channels);
  agree("height", options.height, files.shape.height);
  agree("width", options.width, files.shape.width);
  if (options.vocab > 0 && options.vocab < files.classes) {
    throw UsageError(
        fmt::format("{} has {} classes, but model.classes = {}", files.format, files.classes, options.vocab),
        fmt::format("set model.classes = {}", files.classes));
  }
  OpenedData data;
  data.vocab = files.classes;
  const int64_t count = count_images(files.train);
  const auto part_of = [&](const std::vector<ImagePiece>& pieces, const SamplePart& part) {
    return std::make_shared<ImageDataset>(pieces, part, files.shape, files.normalisation);
  };
  if (!files.held_out.empty()) {
    data.train = part_of(files.train, SamplePart::range(0, count));
    data.held_out = part_of(files.held_out, SamplePart::range(0, count_images(files.held_out)));
  } else {
    if (count < 2 && options.held_out > 0)
      throw UsageError(fmt::format("{} has one image: none is left to hold out", options.path), "data.held_out = 0");
    const SampleSplit split = split_samples(count, options.held_out, options.split, options.seed);
    data.train = part_of(files.train, split.train);
    if (split.held_out.count() > 0) data.held_out = part_of(files.train, split.held_out);
  }
  data.description =
      fmt::format("{}{} ({} × {} × {}, {} classes) · {}", files.format,
                  options.path.empty() ? fmt::format(", seed {}", options.seed) : " " + options.path,
                  files.shape.channels, files.shape.height, files.shape.width, files.classes, sizes(data));
  return data;
}

}  // namespace

OpenedData open_data(const DataOptions& options) {
  check(options);
  const DataKind kind = options.kind == DataKind::kAuto ? guess_kind(options) : options.kind;
  if (!options.tokenizer.empty() && kind != DataKind::kText) {
    throw UsageError(fmt::format("data.tokenizer = \"{}\" is for text, but these data are {}", options.tokenizer,
                                 name_of(options.path.empty() ? DataKind::kGenerated : kind)),
                     options.path.empty() ? "name the text in data.path" : "leave data.tokenizer out");
  }
  if (kind == DataKind::kText) return open_text_data(options);
  if (kind == DataKind::kTokens) return open_token_data(options);
  if (kind == DataKind::kImages) return open_image_data(options);
  if (options.channels == 0) return open_generated_text(options);
  DataOptions images = options;
  images.path.clear();  // generated: no file is looked at
  return open_image_data(images);
}

DataOptions data_options_of(const Config& config) {
  DataOptions options;
  options.path = config.data.path;
  options.kind = config.data.kind;
  const bool is_image_model = !config.model.takes_tokens();
  if (is_image_model && options.kind == DataKind::kAuto) {
    options.kind = options.path.empty() ? DataKind::kGenerated : DataKind::kImages;
  }
  options.tokenizer = config.data.tokenizer;
  options.cache = config.data.cache;
  options.held_out = config.data.held_out;
  options.split = config.data.split;
  options.seed = static_cast<uint64_t>(config.train.seed);
  options.generated.num_bytes = config.data.generated_size;
  options.generated_images = config.data.generated_samples;
  if (config.model.takes_tokens()) {
    options.seq = config.model.seq;
    options.vocab = config.model.vocab;
  } else {
    options.vocab = config.model.classes;
    options.channels = config.model.channels;
    options.height = options.width = config.model.image;
  }
  return options;
}

}  // namespace trireme
