Register-ArgumentCompleter -Native -CommandName embedsidecar -ScriptBlock {
  param($word, $line, $at)
  $words = @($line.CommandElements | Select-Object -Skip 1 | ForEach-Object { $_.ToString() })
  if ($word -eq '') { $words += '""' }
  & embedsidecar __complete @words 2>$null | ForEach-Object {
    $name, $tip = $_ -split "`t", 2
    if ($name -like "$word*") {
      if (-not $tip) { $tip = $name }
      [System.Management.Automation.CompletionResult]::new($name, $name, 'ParameterValue', $tip)
    }
  }
}
