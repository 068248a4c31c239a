#pragma once

#include "server/http/http_server.h"
#include "server/router.h"
#include "tests/server/fake_service.h"
#include "tests/server/raw_client.h"

#include <string>
#include <vector>

namespace rigel::server {

/// A whole server over the fake service, on a port of its own.
struct Serving {
  explicit Serving(std::vector<std::string> api_keys = {}, http::HttpServerOptions options = {})
      : router(std::move(api_keys)),
        server(on_any_port(std::move(options)), [this](auto exchange) { router.handle(exchange); },
               {}) {
    router.set_model(model);
  }
  ~Serving() { server.stop(); }

  RawResponse call(std::string_view method, std::string_view path, std::string_view body = {},
                   std::string_view headers = {}) {
    return RawClient(server.port()).call(method, path, body, headers);
  }

  static http::HttpServerOptions on_any_port(http::HttpServerOptions options) {
    options.port = 0;
    return options;
  }

  FakeService service;
  FakeCodec codec;
  ServedModel model{.name = "fake", .created = 1700000000, .text = codec, .service = service};
  Router router;
  http::HttpServer server;
};

}  // namespace rigel::server
