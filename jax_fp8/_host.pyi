from typing import Any

build_id: str

def select_config(
    batch: int, m: int, n: int, k: int, rows_per_b_scale: int, out: str, num_sms: int, config: str = ""
) -> dict[str, Any]: ...
def config_names(rows_per_b_scale: int, out: str) -> list[str]: ...
