/* host_identity_test.c - tests of the column `host`, the text that identifies a host: which of the system's identifiers
 * it is made from, when the host counts as verified, and how a name that the user gives is added. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/machine/host_identity.h"
#include "tests/folder_test.h"

#define ID    "0123456789abcdef0123456789abcdef"
#define NET   "/sys/class/net/"
#define BOARD "/sys/class/dmi/id/"

/* Writes a file of the host `host` and creates its parent folders. */
static void put(const char *host, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s%s", test_folder, host, path);
    for (char *p = full + strlen(test_folder) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0777);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void put_card(const char *host, const char *name, const char *type, const char *address)
{
    char path[128];
    snprintf(path, sizeof path, NET "%s/addr_assign_type", name), put(host, path, type);
    snprintf(path, sizeof path, NET "%s/address", name), put(host, path, address);
    snprintf(path, sizeof path, NET "%s/device/vendor", name), put(host, path, "0x8086\n");
}

/* Writes the files of a host: flags for /proc/cpuinfo, a machine-id, and the address of its network card. */
static void put_host(const char *host, const char *flags, const char *id, const char *address)
{
    put(host, "/proc/cpuinfo", flags);
    put(host, "/etc/machine-id", id);
    put_card(host, "eno1", "0\n", address);
}

/* The text of a prepared host with a GPU; the result is valid until the fourth call after this one. */
static const char *text_with(const char *host, const char *name, const char *gpu)
{
    static char text[4][PB_HOST_TEXT];
    static int at;
    at = (at + 1) % 4;
    pb_host_text(in_folder(host), name, gpu, text[at]);
    return text[at];
}
static const char *text_of(const char *host, const char *name) { return text_with(host, name, NULL); }

static void expect_parts(const char *text, const char *name, const char *hash, bool verified)
{
    const pb_host h = pb_host_parse(text);
    if (strcmp(h.name, name) != 0 || strcmp(h.hash, hash) != 0 || h.verified != verified)
        fail_msg("%s: name '%s', hash '%s', verified %d", text ? text : "NULL", h.name, h.hash, h.verified);
}

static void a_text_has_three_forms(void **state)
{
    (void)state;
    expect_parts("lab-1/0a1b2c3d", "lab-1", "0a1b2c3d", true);
    expect_parts("lab-1/", "lab-1", "", true);
    expect_parts("/0a1b2c3d", "", "0a1b2c3d", true);
    expect_parts("?0a1b2c3d", "", "0a1b2c3d", false);
    expect_parts("?", "", "", false);
    const char *const others[] = {NULL,
                                  "",
                                  "/",
                                  "lab-1",
                                  "lab 1/0a1b2c3d",
                                  "../0a1b2c3d",
                                  "a/b/0a1b2c3d",
                                  "lab/0a1b",
                                  "lab/0A1B2C3D",
                                  "lab?0a1b2c3d",
                                  "/0a1b2c3d5",
                                  "0a1b2c3d",
                                  "a2345678901234567890123456789012345678901/0a1b2c3d"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) expect_parts(others[i], "", "", false);
}

static void hosts_are_one_machine_by_name_else_by_hash(void **state)
{
    static const struct {
        const char *a, *b;
        bool same;
    } cases[] = {
        {"/0a1b2c3d", "/0a1b2c3d", true},
        {"/0a1b2c3d", "/1a1b2c3d", false},
        {"?0a1b2c3d", "?0a1b2c3d", false},
        {"?0a1b2c3d", "/0a1b2c3d", false},
        {"pool/0a1b2c3d", "pool/1a1b2c3d", true},
        {"a/0a1b2c3d", "b/0a1b2c3d", false},
        {"a/0a1b2c3d", "/0a1b2c3d", true},
        {"a/", "/0a1b2c3d", false},
        {"a/", "a/", true},
        {"", "", false},
        {"a/0a1b2c3d", "", false},
        {NULL, NULL, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (pb_host_same(cases[i].a, cases[i].b) != cases[i].same ||
            pb_host_same(cases[i].b, cases[i].a) != cases[i].same)
            fail_msg("%s and %s: want %d", cases[i].a, cases[i].b, cases[i].same);
}

static void a_host_with_two_identities_is_verified_unless_it_is_virtual(void **state)
{
    (void)state;
    put_host("metal", "flags\t\t: fpu avx\n", ID "\n", "3c:ec:ef:00:00:01\n");
    put_host("virtual", "flags\t\t: fpu hypervisor avx\n", ID "\n", "3c:ec:ef:00:00:01\n");
    put_host("silent", "Features\t: fp asimd\n", ID "\n", "3c:ec:ef:00:00:01\n"); /* no flags: it may be virtual */
    put_host("other", "flags\t\t: fpu avx\n", ID "\n", "3c:ec:ef:00:00:02\n");
    char metal[PB_HOST_TEXT];
    snprintf(metal, sizeof metal, "%s", text_of("metal", NULL));
    const char *virtual = text_of("virtual", NULL);
    expect_parts(metal, "", metal + 1, true);
    assert_int_equal(strlen(metal), 1 + PB_HOST_HASH);
    assert_int_equal(*virtual, '?');
    assert_string_equal(virtual + 1, metal + 1); /* the hash does not depend on whether the host is virtual */
    assert_int_equal(*text_of("silent", NULL), '?');
    assert_string_not_equal(text_of("other", NULL), metal);
    expect_parts(text_of("virtual", "pool.a"), "pool.a", metal + 1, true);
    expect_parts(text_of("metal", "box"), "box", metal + 1, true);
}

/* Virtual machines that are copies of one image, with different GPUs: the hosts of a pool can be told apart. */
static void a_gpu_is_a_host_of_its_own(void **state)
{
    char first[PB_HOST_TEXT];
    (void)state;
    put_host("copy", "flags\t\t: fpu hypervisor avx\n", ID "\n", "3c:ec:ef:00:00:01\n");
    snprintf(first, sizeof first, "%s", text_with("copy", "pool", "GPU-9704ed00"));
    expect_parts(first, "pool", first + 5, true);
    assert_string_equal(text_with("copy", "pool", "GPU-9704ed00"), first);
    assert_string_not_equal(text_with("copy", "pool", "GPU-45c1f5da"), first);
    assert_string_not_equal(text_of("copy", "pool"), first);
    assert_int_equal(*text_with("copy", NULL, "GPU-9704ed00"), '?');
    put_host("twin", "flags\t\t: fpu hypervisor avx\n", "00000000000000000000000000000000\n", "3c:ec:ef:00:00:07\n");
    assert_string_not_equal(text_with("twin", "pool", "GPU-9704ed00"), first);
}

/* A container has the machine-id of its image, or none, and sees no network card. */
static void a_host_with_one_copyable_identity_is_unverified(void **state)
{
    (void)state;
    put("nothing", "/proc/cpuinfo", "flags\t\t: fpu avx\n");
    assert_string_equal(text_of("nothing", NULL), "?");
    assert_string_equal(text_of("nothing", "box"), "box/");
    put("image", "/proc/cpuinfo", "flags\t\t: fpu avx\n");
    put("image", "/etc/machine-id", ID "\n");
    put("image", NET "eth0/address", "3c:ec:ef:00:00:01\n"); /* virtual: no folder `device` */
    put("image", NET "eth0/addr_assign_type", "0\n");
    put_card("image", "wlan0", "3\n", "3c:ec:ef:00:00:09\n"); /* an address that software set */
    put_card("image", "usb0", "0\n", "00:00:00:00:00:00\n");
    assert_int_equal(*text_of("image", NULL), '?');
    put_host("installing", "flags\t\t: fpu avx\n", "uninitialized\n", "3c:ec:ef:00:00:01\n");
    assert_int_equal(*text_of("installing", NULL), '?');
}

/* If a host has other identifiers, the mainboard's UUID is not in the hash: only root can read the UUID, so the hash
 * would depend on the user. */
static void the_mainboard_identifies_a_host_that_lacks_another_identity(void **state)
{
    char before[PB_HOST_TEXT];
    (void)state;
    put_host("root", "flags\t\t: fpu avx\n", ID "\n", "3c:ec:ef:00:00:01\n");
    snprintf(before, sizeof before, "%s", text_of("root", NULL));
    put("root", BOARD "product_uuid", "5f1c\n");
    assert_string_equal(text_of("root", NULL), before);
    put("board", "/proc/cpuinfo", "flags\t\t: fpu avx\n");
    put("board", BOARD "board_serial", "SN-1\n");
    snprintf(before, sizeof before, "%s", text_of("board", NULL));
    expect_parts(before, "", before + 1, true);
    put("board", BOARD "product_uuid", "5f1c\n");
    expect_parts(text_of("board", NULL), "", text_of("board", NULL) + 1, true);
    assert_string_not_equal(text_of("board", NULL), before);
}

static void the_name_is_the_option_else_the_variable(void **state)
{
    const char *name;
    (void)state;
    unsetenv("PB_MACHINE");
    CHECK_OK(pb_host_name(NULL, &name));
    assert_null(name);
    CHECK_OK(pb_host_name("rack-7.b_2", &name));
    assert_string_equal(name, "rack-7.b_2");
    setenv("PB_MACHINE", "pool", 1);
    CHECK_OK(pb_host_name(NULL, &name));
    assert_string_equal(name, "pool");
    CHECK_OK(pb_host_name("box", &name));
    assert_string_equal(name, "box");
    setenv("PB_MACHINE", "a/b", 1);
    CHECK_FAILS(pb_host_name(NULL, &name), PB_EINVAL, "PB_MACHINE a/b: the name of a machine has 1 to 40");
    setenv("PB_MACHINE", "", 1);
    CHECK_OK(pb_host_name(NULL, &name));
    assert_null(name);
    const char *const wrong[] = {"",          ".",   "..",  ".hidden",
                                 "two words", "a/b", "a?b", "12345678901234567890123456789012345678901"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_FAILS(pb_host_name(wrong[i], &name), PB_EINVAL, "--machine");
    CHECK_OK(pb_host_name("1234567890123456789012345678901234567890", &name));
}

#define COLUMNS      "bench_version,run_id,machine_id,process,key,metric,unit,better,value,samples,status,note"
#define ROW(process) "2,r,m," process ",a/b,backward_time,s,lower,1,3,ok,n"

/* Files from before the column `host` existed can be read. Naming the machine adds the name to rows without a host and
 * to unverified hosts, not to verified ones. */
static void rows_without_a_host_are_read_and_can_be_named(void **state)
{
    static const char old[] = COLUMNS "\n" ROW("1") "\n" ROW("2") "\n";
    static const char now[] = COLUMNS ",host\n" ROW("1") ",?0a1b2c3d\n" ROW("2") ",/1a1b2c3d\n" ROW("3") ",lab/\n";
    pb_table t;
    (void)state;
    CHECK_OK(pb_table_parse("old.csv", old, strlen(old), &t));
    assert_int_equal(t.n, 2);
    assert_string_equal(t.rows[0].host, "");
    assert_ptr_equal(t.rows[0].host, t.rows[1].host);
    CHECK_OK(pb_host_name_rows(&t, "lab"));
    assert_string_equal(t.rows[1].host, "lab/");
    pb_table_free(&t);
    CHECK_OK(pb_table_parse("now.csv", now, strlen(now), &t));
    assert_string_equal(t.rows[0].host, "?0a1b2c3d");
    CHECK_OK(pb_host_name_rows(&t, "lab"));
    assert_string_equal(t.rows[0].host, "lab/0a1b2c3d");
    assert_string_equal(t.rows[1].host, "/1a1b2c3d");
    CHECK_FAILS(pb_host_name_rows(&t, "box"), PB_EINVAL, "now.csv was measured on the machine lab");
    CHECK_FAILS(pb_host_name_rows(&t, "no/name"), PB_EINVAL, "--machine no/name");
    pb_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_has_three_forms),
        cmocka_unit_test(hosts_are_one_machine_by_name_else_by_hash),
        cmocka_unit_test(a_host_with_two_identities_is_verified_unless_it_is_virtual),
        cmocka_unit_test(a_gpu_is_a_host_of_its_own),
        cmocka_unit_test(a_host_with_one_copyable_identity_is_unverified),
        cmocka_unit_test(the_mainboard_identifies_a_host_that_lacks_another_identity),
        cmocka_unit_test(the_name_is_the_option_else_the_variable),
        cmocka_unit_test(rows_without_a_host_are_read_and_can_be_named),
    };
    return cmocka_run_group_tests(tests, test_open_folder, test_close_folder);
}
