#include "trireme/config/training.h"

#include "trireme/base/json.h"
#include "trireme/config/value.h"

namespace trireme {

std::string training_to_json(const Training& training) {
  const Config& config = training.config;
  Json values, origins = Json::object();
  for (const Key& key : key_table(config.model.library).keys()) {
    const std::string name = key.full_name();
    std::visit([&](const auto& value) { values[name] = value; }, get_value(config, key));
    if (!config.origins.is_default(name)) origins[name] = config.origins.of(name);
  }
  return Json{{"config", values},
              {"origins", origins},
              {"predicted", {{"ms", training.predicted.ms}, {"memory_bytes", training.predicted.memory_bytes}}}}
      .dump();
}

Training training_from_json(std::string_view text) {
  const Json json = Json::parse(text);
  Training training;
  Config& config = training.config;
  const Json& values = json.at("config");
  for (const Key& key : key_table(values.at("model.library").get<std::string>()).keys()) {
    set_value(config, key, value_from(values.at(key.full_name())), "the launcher");
  }
  for (const auto& [name, origin] : json.at("origins").items()) config.origins.set(name, origin.get<std::string>());
  training.predicted = {json.at("predicted").at("ms"), json.at("predicted").at("memory_bytes")};
  return training;
}

}  // namespace trireme
