// An outside user of the installed library: quantizes two rows and checks what came out.
#include <octet/memory.hpp>
#include <octet/quantize.hpp>

#include <cstdio>

int main() {
    octet::Tensor x(octet::Format::f32, {2, 4}), data(octet::Format::e4m3, {2, 4}), scale(octet::Format::f32, {2});
    const float values[] = {1, -2, 3, -4, 0, 0, 0, 0};
    for (int i = 0; i < 8; ++i) x.as<float>()[i] = values[i];
    octet::quantize_rows(x, {}, {data, scale, {}});
    // 448 / 4 = 112, rounded down to a power of two: 64; an all-zero row has 2^48.
    const bool right = scale.as<float>()[0] == 64.0f && scale.as<float>()[1] == 281474976710656.0f &&
                       octet::E4M3::decode(data.as<unsigned char>()[3]) == -256.0f;
    std::puts(right ? "consumer: right" : "consumer: wrong");
    return right ? 0 : 1;
}
