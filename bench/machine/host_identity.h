/* host_identity.h - identifies the host that measured: the text of the column `host` of results.csv.
 *
 * A machine_id names a kind of machine: all virtual machines of one processor family may share it. The host is one
 * machine of that kind. The column has one of these forms:
 *
 *   NAME/HASH  the user named the machine: --machine NAME, or the environment variable PB_MACHINE. Verified
 *   /HASH      the user gave no name, and the host can be identified (see below). Verified
 *   ?HASH      the user gave no name, and the host cannot be identified. Unverified
 *   (empty)    the file was written before the column existed, or imported. Unverified
 *
 * NAME is 1 to 40 characters of [A-Za-z0-9._-], the first not a period. It stands for the machine, so it may also name
 * a pool: rented machines of one kind, between which no difference is expected. HASH is 8 hexadecimal digits, or
 * nothing if the system reports no property to hash; it is recorded for a named machine too, so that the hosts of a
 * pool can be told apart.
 *
 * In a run on a GPU, HASH also depends on the UUID of the GPU: each GPU is a host of its own, because virtual machines
 * with GPUs are often copies of one image, which nothing else tells apart.
 *
 * HASH is made from /etc/machine-id and the MAC address of the first network card; if one of them is missing, also from
 * the mainboard's UUID or serial number, which only root may read. A normal user and root thus get the same HASH if
 * /etc/machine-id and the MAC address both exist.
 *
 * A host can be identified if it is not a virtual machine (the kernel reports processor flags, and `hypervisor` is not
 * among them), and the system reports the mainboard's UUID or serial number, or both /etc/machine-id and the MAC
 * address. The two conditions exclude copies: virtual machines of one image have the same /etc/machine-id, and may have
 * the same MAC address; a container may have the /etc/machine-id of its image, and sees no network card. */
#ifndef PB_HOST_IDENTITY_H
#define PB_HOST_IDENTITY_H
#include "bench/rows/rows.h"

/* Lengths without NUL; bytes of the column's text with NUL. */
enum { PB_MACHINE_NAME = 40, PB_HOST_HASH = 8, PB_HOST_TEXT = PB_MACHINE_NAME + PB_HOST_HASH + 2 };

/* The parts of the column's text; "" for a part that is absent. */
typedef struct pb_host {
    char name[PB_MACHINE_NAME + 1], hash[PB_HOST_HASH + 1];
    bool verified;
} pb_host;

/* Splits the text of the column. NULL, and text that has none of the forms above, are an unverified host without name
 * and hash. */
pb_host pb_host_parse(const char *text);
/* True if both rows were measured on one machine: both hosts are verified, and they have equal names or, if a host has
 * no name, equal hashes. */
bool pb_host_same(const char *a, const char *b);

/* Sets *name to the name that the user gave: `option` (--machine), else PB_MACHINE, else NULL. EINVAL: it is not a
 * NAME. */
pb_status pb_host_name(const char *option, const char **name);
/* Writes the text of this host. name: as from pb_host_name(). gpu: UUID of the GPU that measures; NULL: none, or
 * unknown. root is put before the paths /etc, /proc and /sys: "" except in tests. */
void pb_host_text(const char *root, const char *name, const char *gpu, char out[PB_HOST_TEXT]);

/* Gives the name `name` to the host of each row whose host is unverified. EINVAL: `name` is not a NAME, or a row has
 * another name. ENOMEM. */
pb_status pb_host_name_rows(pb_table *t, const char *name);
#endif
