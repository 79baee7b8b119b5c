/* The C interface from C: what a C program would do with it, checked; and that errors come back as such. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "octet/octet.h"
#include "octet/octet_layer.h"

static int failures = 0;

/* A failed check is reported and counted; the program goes on and its exit code says it. */
#define CHECK(condition)                                                                                        \
    do {                                                                                                        \
        if (!(condition)) {                                                                                     \
            ++failures;                                                                                         \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, octet_last_error()); \
        }                                                                                                       \
    } while (0)

#define OK(call) CHECK((call) == OCTET_OK)
#define REFUSED(call, text) CHECK((call) == OCTET_INVALID_ARGUMENT && strstr(octet_last_error(), (text)) != NULL)

static octet_tensor* tensor(void* data, octet_format format, int32_t rank, int64_t s0, int64_t s1, int64_t s2) {
    const int64_t shape[3] = {s0, s1, s2};
    octet_tensor* made = NULL;
    OK(octet_tensor_create(data, format, rank, shape, NULL, OCTET_DEVICE_CPU, 0, &made));
    return made;
}

static octet_quantized* quantized(octet_tensor* data, octet_tensor* scale, octet_tensor* inverse) {
    octet_quantized* made = NULL;
    OK(octet_quantized_create(data, scale, inverse, &made));
    /* The views were copied. */
    octet_tensor_destroy(data);
    octet_tensor_destroy(scale);
    octet_tensor_destroy(inverse);
    return made;
}

static octet_quantize_options* options(const char* scaling, const char* rounding) {
    octet_quantize_options* made = NULL;
    OK(octet_quantize_options_create(&made));
    OK(octet_quantize_options_set(made, "scaling", scaling));
    OK(octet_quantize_options_set(made, "scale_rounding", rounding));
    return made;
}

static void versions(void) {
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", OCTET_VERSION_MAJOR, OCTET_VERSION_MINOR, OCTET_VERSION_PATCH);
    CHECK(strcmp(octet_version(), text) == 0);
    CHECK(octet_abi_version() == OCTET_ABI_VERSION);
    CHECK(strstr(octet_build_info(), text) != NULL);
    CHECK(strcmp(octet_status_name(OCTET_OK), "ok") == 0);
    CHECK(strcmp(octet_status_name(OCTET_INVALID_ARGUMENT), "invalid argument") == 0);
    CHECK(strcmp(octet_status_name(-5), "unknown status") == 0);
    CHECK(strcmp(octet_status_name(1000), "unknown status") == 0);
}

static void formats(void) {
    octet_format format = -1;
    int64_t bytes = 0;
    OK(octet_format_parse("e4m3fnuz", &format));
    CHECK(format == OCTET_E4M3FNUZ);
    CHECK(strcmp(octet_format_name(OCTET_E5M2), "e5m2") == 0);
    CHECK(octet_format_name(6) == NULL);
    OK(octet_format_bytes(OCTET_BF16, &bytes));
    CHECK(bytes == 2);
    REFUSED(octet_format_parse("e3m4", &format), "e3m4");
    REFUSED(octet_format_parse(NULL, &format), "NULL");
    REFUSED(octet_format_parse("e4m3", NULL), "NULL");

    const float values[6] = {1.0f, -0.0f, 448.0f, 1e6f, NAN, 0.0009765625f};
    uint8_t codes[6];
    float back[6];
    OK(octet_encode(OCTET_E4M3, values, 6, codes));
    CHECK(codes[0] == 0x38 && codes[1] == 0x80 && codes[2] == 0x7E && codes[3] == 0x7E && (codes[4] & 0x7F) == 0x7F);
    CHECK(codes[5] == 0x00); /* half of the smallest subnormal: to even */
    OK(octet_decode(OCTET_E4M3, codes, 6, back));
    CHECK(back[0] == 1.0f && back[1] == 0.0f && signbit(back[1]) && back[3] == 448.0f && isnan(back[4]));
    OK(octet_encode(OCTET_E4M3, NULL, 0, NULL));
    REFUSED(octet_encode(OCTET_E4M3, NULL, 6, codes), "values");
    REFUSED(octet_encode(OCTET_E4M3, values, -1, codes), "-1");
    REFUSED(octet_encode(99, values, 6, codes), "99");
}

static void recipes(void) {
    octet_recipe* recipe = NULL;
    octet_quantize_options* made = NULL;
    char text[128];
    size_t needed = 0;
    OK(octet_recipe_parse("fp8_rowwise:gradient=e5m2", &recipe));
    OK(octet_recipe_print(recipe, NULL, 0, &needed));
    CHECK(needed == strlen("fp8_rowwise:gradient=e5m2") + 1);
    OK(octet_recipe_print(recipe, text, sizeof text, NULL));
    CHECK(strcmp(text, "fp8_rowwise:gradient=e5m2") == 0);
    REFUSED(octet_recipe_print(recipe, text, 5, &needed), "5 bytes");
    OK(octet_quantize_options_from_recipe(recipe, OCTET_ROLE_GRADIENT, &made));
    OK(octet_quantize_options_get(made, "format", text, sizeof text, NULL));
    CHECK(strcmp(text, "e5m2") == 0);
    OK(octet_quantize_options_get(made, "scale_rounding", text, sizeof text, NULL));
    CHECK(strcmp(text, "power_of_two") == 0);
    octet_quantize_options_destroy(made);
    made = NULL;
    REFUSED(octet_quantize_options_from_recipe(recipe, 7, &made), "role is 7");
    CHECK(made == NULL);
    octet_recipe_destroy(recipe);
    recipe = NULL;
    REFUSED(octet_recipe_parse("fp9", &recipe), "fp9");
    CHECK(recipe == NULL);
    OK(octet_recipe_parse("bf16", &recipe));
    REFUSED(octet_quantize_options_from_recipe(recipe, OCTET_ROLE_WEIGHT, &made), "bf16");
    octet_recipe_destroy(recipe);
}

/* Two rows, a scale each: quantize, look at the bits, and go back. */
static void rows(octet_backend backend) {
    float x[2][4] = {{1.0f, -2.0f, 0.5f, 3.5f}, {0.0f, -0.0f, 0.0f, 0.0f}};
    uint8_t data[2][4];
    float scale[2], inverse[2], back[2][4];
    octet_execution* on = NULL;
    OK(octet_execution_create(&on));
    OK(octet_execution_set_backend(on, backend));
    OK(octet_execution_set_threads(on, 1));
    REFUSED(octet_execution_set_threads(on, -1), "-1");
    REFUSED(octet_execution_set_backend(on, 17), "17");
    octet_quantize_options* how = options("rowwise", "power_of_two");
    octet_tensor* from = tensor(x, OCTET_F32, 2, 2, 4, 0);
    octet_quantized* out = quantized(tensor(data, OCTET_E4M3, 2, 2, 4, 0), tensor(scale, OCTET_F32, 1, 2, 0, 0),
                                     tensor(inverse, OCTET_F32, 1, 2, 0, 0));
    OK(octet_quantize_rows(from, how, out, on));
    CHECK(scale[0] == 128.0f && inverse[0] == 1.0f / 128.0f); /* 448 / 3.5 = 128 */
    CHECK(scale[1] == 281474976710656.0f);                    /* all zero: 2^48 */
    CHECK(data[0][3] == 0x7E && data[1][0] == 0x00 && data[1][1] == 0x80);
    octet_tensor* to = tensor(back, OCTET_F32, 2, 2, 4, 0);
    OK(octet_dequantize_rows(out, how, to, on));
    CHECK(memcmp(back, x, sizeof x) == 0);
    OK(octet_quantize_rows(from, how, out, NULL)); /* the default execution */

    /* Errors: a status, a text that names the function and the value, and nothing written. */
    uint8_t kept[2][4];
    memcpy(kept, data, sizeof data);
    REFUSED(octet_quantize_rows(NULL, how, out, on), "octet_quantize_rows: x is NULL");
    REFUSED(octet_quantize_rows(from, NULL, out, on), "options is NULL");
    REFUSED(octet_quantize_rows(from, how, NULL, on), "out is NULL");
    REFUSED(octet_quantize_rows((octet_tensor*)how, how, out, on), "not a handle of the kind");
    OK(octet_tensor_set_data(from, NULL));
    REFUSED(octet_quantize_rows(from, how, out, on), "null");
    OK(octet_tensor_set_data(from, data)); /* overlaps the output, and is f32 at a byte's address perhaps */
    CHECK(octet_quantize_rows(from, how, out, on) == OCTET_INVALID_ARGUMENT);
    CHECK(memcmp(kept, data, sizeof data) == 0);
    octet_tensor_destroy(from);
    octet_tensor_destroy(to);
    octet_quantized_destroy(out);
    octet_quantize_options_destroy(how);
    octet_execution_destroy(on);
}

/* Columns per group: three groups, one of them empty, each starting on a multiple of 4. */
static void columns(void) {
    enum { M = 5, K = 2, G = 3, P = 16 };
    float x[M][K] = {{1, 10}, {2, 20}, {4, 40}, {7, 70}, {9, 90}};
    const int32_t ends[G] = {3, 3, 4}; /* the last row belongs to nobody */
    uint8_t data[K][P];
    float scale[G][K], back[M][K];
    int64_t bound = 0;
    OK(octet_padded_bound(M, G, 4, &bound));
    CHECK(bound <= P);
    memset(data, 0xEE, sizeof data);
    for (int i = 0; i < M * K; ++i) back[i / K][i % K] = -1.0f;
    octet_groups* groups = NULL;
    OK(octet_groups_create(ends, G, OCTET_DEVICE_CPU, 0, &groups));
    octet_quantize_options* how = options("rowwise", "exact");
    octet_tensor* from = tensor(x, OCTET_F32, 2, M, K, 0);
    octet_tensor* to = tensor(back, OCTET_F32, 2, M, K, 0);
    octet_quantized* out = quantized(tensor(data, OCTET_E4M3, 2, K, P, 0), tensor(scale, OCTET_F32, 2, G, K, 0), NULL);
    OK(octet_quantize_columns(from, groups, 4, how, out, NULL));
    CHECK(scale[0][0] == 112.0f && scale[2][1] == (float)(448.0 / 70.0));
    CHECK(data[0][2] == 0x7E && data[0][3] == 0x00); /* 4 * 112 = 448, then the tail of the first group */
    CHECK(data[0][4] == 0x7E);                       /* the empty group takes no room */
    OK(octet_dequantize_columns(out, groups, 4, how, to, NULL));
    CHECK(back[2][0] == 4.0f && back[3][0] == 7.0f && back[4][0] == -1.0f);
    REFUSED(octet_quantize_columns(from, groups, 0, how, out, NULL), "alignment is 0");
    REFUSED(octet_quantize_columns(from, NULL, 4, how, out, NULL), "groups is NULL");
    octet_groups_destroy(groups);

    const int32_t falling[G] = {3, 2, 4};
    OK(octet_groups_create(falling, G, OCTET_DEVICE_CPU, 0, &groups));
    REFUSED(octet_quantize_columns(from, groups, 4, how, out, NULL), "must not decrease");
    octet_groups_destroy(groups);
    octet_tensor_destroy(from);
    octet_tensor_destroy(to);
    octet_quantized_destroy(out);
    octet_quantize_options_destroy(how);
}

/* MX weights in one orientation, and their scales to the blocked layout and back. */
static void weights(void) {
    enum { E = 2, N = 3, K = 40, B = 2 };
    static float w[E][N][K];
    static uint8_t data[E][N][K], scale[E][N][B], again[E][N][B], blocked[E * 512];
    int64_t bytes = 0;
    for (int i = 0; i < E * N * K; ++i) w[i / (N * K)][i / K % N][i % K] = (float)(i % 17) - 8.0f;
    octet_quantize_options* how = options("mx", "power_of_two");
    octet_tensor* from = tensor(w, OCTET_F32, 3, E, N, K);
    octet_quantized* along_k =
        quantized(tensor(data, OCTET_E4M3, 3, E, N, K), tensor(scale, OCTET_E8M0, 3, E, N, B), NULL);
    OK(octet_quantize_weights(from, how, along_k, NULL, NULL));
    CHECK(scale[0][0][0] == 127 - 5); /* amax 8: 8 / 448 rounds up to 2^-5 */
    REFUSED(octet_quantize_weights(from, how, NULL, NULL, NULL), "both NULL");
    REFUSED(octet_dequantize_weights(along_k, 9, how, from, NULL), "orientation is 9");
    OK(octet_swizzled_bytes(N, B, &bytes));
    CHECK(bytes == 512);
    octet_tensor* plain = tensor(scale, OCTET_E8M0, 3, E, N, B);
    octet_tensor* tiles = tensor(blocked, OCTET_E8M0, 2, E, 512, 0);
    octet_tensor* back = tensor(again, OCTET_E8M0, 3, E, N, B);
    OK(octet_swizzle_scales(plain, tiles, NULL));
    CHECK(blocked[16] == scale[0][1][0] && blocked[512 + 1] == scale[1][0][1]);
    OK(octet_unswizzle_scales(tiles, back, NULL));
    CHECK(memcmp(scale, again, sizeof scale) == 0);
    octet_tensor_destroy(plain);
    octet_tensor_destroy(tiles);
    octet_tensor_destroy(back);
    octet_tensor_destroy(from);
    octet_quantized_destroy(along_k);
    octet_quantize_options_destroy(how);
}

/* A step of two experts, small enough to check by hand; its values are exact in e4m3 with any power-of-two scale. */
typedef struct step {
    float a[3][2], w[2][2][2], dy[3][2], y[3][2], da[3][2], dw[2][2][2];
    octet_groups* groups;
    octet_tensor *ta, *tw, *tdy, *ty, *tda, *tdw;
} step;
static const int32_t step_ends[2] = {2, 3};

static void poison_step(step* s) {
    memset(s->y, 0xEE, sizeof s->y);
    memset(s->da, 0xEE, sizeof s->da);
    memset(s->dw, 0xEE, sizeof s->dw);
}

static void open_step(step* s) {
    *s = (step){
        .a = {{1, 2}, {3, 4}, {5, 6}}, .w = {{{1, 0}, {0, 1}}, {{1, 1}, {2, 0}}}, .dy = {{1, 0}, {0, 1}, {1, 1}}};
    poison_step(s);
    OK(octet_groups_create(step_ends, 2, OCTET_DEVICE_CPU, 0, &s->groups));
    s->ta = tensor(s->a, OCTET_F32, 2, 3, 2, 0);
    s->tw = tensor(s->w, OCTET_F32, 3, 2, 2, 2);
    s->tdy = tensor(s->dy, OCTET_F32, 2, 3, 2, 0);
    s->ty = tensor(s->y, OCTET_F32, 2, 3, 2, 0);
    s->tda = tensor(s->da, OCTET_F32, 2, 3, 2, 0);
    s->tdw = tensor(s->dw, OCTET_F32, 3, 2, 2, 2);
}

static void check_step(const step* s) {
    CHECK(s->y[0][0] == 1 && s->y[1][1] == 4 && s->y[2][0] == 11 && s->y[2][1] == 10);
    CHECK(s->da[0][0] == 1 && s->da[1][1] == 1 && s->da[2][0] == 3 && s->da[2][1] == 1);
    CHECK(s->dw[0][0][0] == 1 && s->dw[0][1][1] == 4 && s->dw[1][0][0] == 5 && s->dw[1][1][1] == 6);
}

static void close_step(step* s) {
    octet_groups_destroy(s->groups);
    octet_tensor* all[6] = {s->ta, s->tw, s->tdy, s->ty, s->tda, s->tdw};
    for (int i = 0; i < 6; ++i) octet_tensor_destroy(all[i]);
}

/* The three products from plain operands, and one of 8-bit operands. */
static void products(void) {
    enum { M = 3, N = 2, K = 2, E = 2 };
    step s;
    open_step(&s);
    octet_operand *oa = NULL, *ow = NULL, *ody = NULL, *oq = NULL;
    OK(octet_operand_create_plain(s.ta, &oa));
    OK(octet_operand_create_plain(s.tw, &ow));
    OK(octet_operand_create_plain(s.tdy, &ody));
    OK(octet_grouped_forward(oa, ow, s.groups, s.ty, NULL, NULL));
    OK(octet_grouped_dgrad(ody, ow, s.groups, s.tda, NULL, NULL));
    OK(octet_grouped_wgrad(ody, oa, s.groups, 1, s.tdw, NULL, NULL));
    check_step(&s);
    octet_product_options* add = NULL;
    OK(octet_product_options_create(&add));
    OK(octet_product_options_set(add, "update", "add"));
    REFUSED(octet_product_options_set(add, "update", "subtract"), "subtract");
    REFUSED(octet_product_options_set(add, "upgrade", "add"), "upgrade");
    char value[16];
    OK(octet_product_options_get(add, "update", value, sizeof value, NULL));
    CHECK(strcmp(value, "add") == 0);
    OK(octet_product_options_get(add, "accumulation", value, sizeof value, NULL));
    CHECK(strcmp(value, "promoted") == 0);
    REFUSED(octet_product_options_get(add, "upgrade", value, sizeof value, NULL), "upgrade");
    OK(octet_grouped_wgrad(ody, oa, s.groups, 1, s.tdw, add, NULL));
    CHECK(s.dw[1][0][0] == 10);
    REFUSED(octet_grouped_forward(NULL, ow, s.groups, s.ty, NULL, NULL), "a is NULL");
    REFUSED(octet_grouped_forward(oa, ow, s.groups, s.tda, add, (octet_execution*)s.groups),
            "not a handle of the kind");
    octet_groups* one = NULL;
    OK(octet_groups_create(step_ends, 1, OCTET_DEVICE_CPU, 0, &one));
    REFUSED(octet_grouped_forward(oa, ow, one, s.ty, NULL, NULL), "experts");

    /* The left side in 8 bits: these values are exact in e4m3 with any power-of-two scale. */
    uint8_t data[M][K];
    float inverse[M], y8[M][N];
    octet_quantize_options* how = options("rowwise", "power_of_two");
    octet_quantized* q = quantized(tensor(data, OCTET_E4M3, 2, M, K, 0), NULL, tensor(inverse, OCTET_F32, 1, M, 0, 0));
    octet_tensor* ty8 = tensor(y8, OCTET_F32, 2, M, N, 0);
    OK(octet_quantize_rows(s.ta, how, q, NULL));
    REFUSED(octet_operand_create_quantized(q, "colwise", &oq), "colwise");
    REFUSED(octet_operand_create_plain(NULL, &oq), "values is NULL");
    OK(octet_operand_create_quantized(q, "rowwise", &oq));
    OK(octet_grouped_forward(oq, ow, s.groups, ty8, NULL, NULL));
    CHECK(memcmp(s.y, y8, sizeof y8) == 0);
    octet_operand_destroy(oa);
    octet_operand_destroy(ow);
    octet_operand_destroy(ody);
    octet_operand_destroy(oq);
    octet_product_options_destroy(add);
    octet_quantize_options_destroy(how);
    octet_quantized_destroy(q);
    octet_groups_destroy(one);
    octet_tensor_destroy(ty8);
    close_step(&s);
}

/* A layer's step, which is the same however its casts are arranged: values that are exact in e4m3. */
static void grouped_linear(void) {
    enum { M = 3, N = 2, K = 2, E = 2 };
    step s;
    open_step(&s);
    octet_recipe* recipe = NULL;
    octet_grouped_linear* linear = NULL;
    OK(octet_recipe_parse("fp8_rowwise", &recipe));
    OK(octet_grouped_linear_create(E, N, K, recipe, &linear));
    REFUSED(octet_grouped_linear_forward(linear, s.ta, s.groups, s.ty, NULL), "bind_weights");
    OK(octet_grouped_linear_bind_weights(linear, s.tw));
    REFUSED(octet_grouped_linear_backward(linear, s.tdy, s.groups, s.tda, s.tdw, 0, NULL), "forward");
    const char* arrangements[2] = {"none", "A and forward, W and forward, dY and dgrad"};
    for (int i = 0; i < 2; ++i) {
        int64_t casts = -1;
        poison_step(&s);
        OK(octet_grouped_linear_arrange_casts(linear, arrangements[i]));
        OK(octet_grouped_linear_weights_changed(linear));
        OK(octet_grouped_linear_forward(linear, s.ta, s.groups, s.ty, NULL));
        OK(octet_grouped_linear_backward(linear, s.tdy, s.groups, s.tda, s.tdw, 0, NULL));
        check_step(&s);
        OK(octet_grouped_linear_report(linear, NULL, NULL, NULL, &casts));
        CHECK(casts == i + 1);
    }
    OK(octet_grouped_linear_backward(linear, s.tdy, s.groups, NULL, s.tdw, 1, NULL));
    CHECK(s.dw[1][0][0] == 10);
    const int64_t da_shape[2] = {M, K};
    octet_tensor* nothing = NULL;
    OK(octet_tensor_create(NULL, OCTET_BF16, 2, da_shape, NULL, OCTET_DEVICE_CPU, 0, &nothing));
    REFUSED(octet_grouped_linear_backward(linear, s.tdy, s.groups, nothing, s.tdw, 1, NULL), "pass a NULL handle");
    CHECK(s.dw[1][0][0] == 10);
    octet_tensor_destroy(nothing);
    REFUSED(octet_grouped_linear_arrange_casts(linear, "W and dgrad"), "W and dgrad");
    REFUSED(octet_grouped_linear_arrange_casts(linear, "W and wgrad"), "beside forward");
    REFUSED(octet_grouped_linear_arrange_casts(linear, NULL), "beside is NULL");
    REFUSED(octet_grouped_linear_arrange_casts(NULL, "none"), "linear is NULL");
    octet_grouped_linear_destroy(linear);
    octet_recipe_destroy(recipe);
    close_step(&s);
}

static void devices(void) {
    int32_t count = -1;
    char text[256];
    OK(octet_device_count(OCTET_DEVICE_CPU, &count));
    CHECK(count == 1);
    OK(octet_device_count(OCTET_DEVICE_CUDA, &count));
    CHECK(count >= 0);
    OK(octet_device_name(OCTET_DEVICE_CPU, 0, text, sizeof text, NULL));
    CHECK(strcmp(text, "cpu") == 0);
    REFUSED(octet_device_name(OCTET_DEVICE_CUDA, 4096, text, sizeof text, NULL), "cuda:4096");
    OK(octet_device_synchronize(OCTET_DEVICE_CPU, 0));
    REFUSED(octet_device_synchronize(OCTET_DEVICE_HIP, 4096), "hip:4096");
    REFUSED(octet_device_count(12, &count), "device_kind is 12");
    REFUSED(octet_device_count(OCTET_DEVICE_CPU, NULL), "NULL");
}

static void handles(void) {
    const int64_t shape[2] = {3, -4}, huge[2] = {INT64_MAX, 2};
    float x[4];
    octet_tensor* made = NULL;
    REFUSED(octet_tensor_create(x, OCTET_F32, 2, shape, NULL, OCTET_DEVICE_CPU, 0, &made), "[3, -4]");
    REFUSED(octet_tensor_create(x, OCTET_F32, 2, huge, NULL, OCTET_DEVICE_CPU, 0, &made), "9223372036854775807");
    REFUSED(octet_tensor_create(x, OCTET_F32, 5, shape, NULL, OCTET_DEVICE_CPU, 0, &made), "rank is 5");
    REFUSED(octet_tensor_create(x, OCTET_F32, -1, shape, NULL, OCTET_DEVICE_CPU, 0, &made), "rank is -1");
    REFUSED(octet_tensor_create(x, OCTET_F32, 1, NULL, NULL, OCTET_DEVICE_CPU, 0, &made), "shape is NULL");
    REFUSED(octet_tensor_create(x, 77, 1, shape, NULL, OCTET_DEVICE_CPU, 0, &made), "format is 77");
    REFUSED(octet_tensor_create(x, OCTET_F32, 1, shape, NULL, 3, 0, &made), "device_kind is 3");
    REFUSED(octet_tensor_create(x, OCTET_F32, 1, shape, NULL, OCTET_DEVICE_CPU, 2, &made), "device_index is 2");
    REFUSED(octet_tensor_create(x, OCTET_F32, 1, shape, NULL, OCTET_DEVICE_CPU, 0, NULL), "tensor is NULL");
    CHECK(made == NULL);
    octet_tensor_destroy(NULL);
    octet_groups_destroy(NULL);
    octet_quantized_destroy(NULL);
    octet_recipe_destroy(NULL);
    octet_quantize_options_destroy(NULL);
    octet_execution_destroy(NULL);
    octet_operand_destroy(NULL);
    octet_product_options_destroy(NULL);

    /* A tensor on a device that this build or machine does not have is an error of the call, not a crash. */
    OK(octet_tensor_create(x, OCTET_F32, 1, shape, NULL, OCTET_DEVICE_HIP, 0, &made));
    octet_tensor_destroy(made);
}

int main(void) {
    CHECK(strcmp(octet_last_error(), "") == 0);
    versions();
    formats();
    recipes();
    rows(OCTET_BACKEND_REFERENCE);
    rows(OCTET_BACKEND_CPU);
    rows(OCTET_BACKEND_AUTOMATIC);
    columns();
    weights();
    products();
    grouped_linear();
    devices();
    handles();
    if (failures != 0)
        fprintf(stderr, "%d checks failed\n", failures);
    else
        printf("the C interface: every check passed\n");
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
